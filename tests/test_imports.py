"""Which module imports which, and what commands load."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from goldens import golden_file

ROOT = Path(__file__).parents[1]
# TensorFlow's datasets and checkpoints, its lowering for XLA, the tape of gradients: imported in functions.
BACKENDS = "decoding model_garden keras_internals pixel_checks xla/island recompute inspect/attention".split()
HEAVY = {"keras", "tensorflow", "jax", "torch"}
# The links by which folders are imported.
PACKAGES = {"recipes": "keras_vit/recipes", "export": "keras_vit/export", "cli": "keras_vit_cli"}


@cache
def imports():
    """What each file of the packages imports, also in its functions: files of theirs, and other modules."""
    files = {}
    for folder in ("keras_vit", *PACKAGES):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            module = path.replace(folder, PACKAGES.get(folder, folder), 1).removesuffix(".py").removesuffix("/__init__")
            files[module.replace("/", ".")] = path
    graph = {}
    for path in files.values():
        names = set()
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = (f"{node.module}.{alias.name}" for alias in node.names)
                names |= {name if name in files else node.module for name in inner}
        graph[path] = {files.get(name, name) for name in names} - {path}
    return graph


def rooms():
    """The paths of each room, from the top of the tables in docs/layout.md to their end."""
    rows = re.findall(r"^\| (`.+?`) \| ", (ROOT / "docs/layout.md").read_text(), re.MULTILINE)
    return [re.findall("`(.+?)`", row) for row in rows]


def test_a_module_imports_from_its_own_room_and_from_those_below():
    height = {path: -i for i, room in enumerate(rooms()) for path in room}
    heights = {file: height[max(filter(file.startswith, height), key=len)] for file in imports()}
    assert len(heights) > 200 and {*height.values()} == {*heights.values()}
    for file, names in imports().items():
        others = names & {*heights}
        assert not [other for other in others if heights[other] > heights[file]], file
        assert not (file.startswith("recipes/") and [other for other in others if other.startswith("export/")]), file


def test_no_circle_of_imports():
    TopologicalSorter(imports()).prepare()  # raises CycleError, which lists the files


def test_the_core_uses_keras_ops_only():
    for file, names in imports().items():
        if file.startswith("keras_vit/") and not file.endswith(tuple(f"/{name}.py" for name in BACKENDS)):
            assert not {"tensorflow", "jax"} & {name.partition(".")[0] for name in names}, file


def output_of(code, *arguments, **options):
    command = [sys.executable, "-c", f"import gc; gc.disable(); {code}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_the_core_is_lazy_with_the_command_line_and_imports_nothing_that_keras_does_not():
    code = "import sys, keras_vit_cli, keras_vit; assert 'keras' not in sys.modules; import keras; "
    code += (
        "before = {*sys.modules}; from keras_vit import load, layers; assert keras_vit.ViT_B16.__name__ == 'ViT_B16'; "
    )
    code += "assert not hasattr(keras_vit, 'no_such_name'); print({*sys.modules} - before)"
    assert {name.partition(".")[0] for name in ast.literal_eval(output_of(code))} <= {"keras_vit", "zipfile"}


def test_commands_without_keras_or_tensorflow(tmp_path):
    """The list of recipes, the configurations of checkpoints, and mistakes that a command line shows."""
    goldens = ("vit_jax_prelogits", "timm_layerscale_reg", "hf_deit", "hf_siglip")
    fine = ["train", *(f"describe {golden_file(tmp_path, golden)}" for golden in goldens)]
    wrong = [
        "train cifar10-10ep --total-steps 20",
        "train cifar10-scratch --data.dataset folder:gone",
        "sweep finetune-pets --recipe.weights gone.npz",
        "preflight cifar10-10ep --total-steps 20",
        "finetune gone --weights gone.npz",
        "finetune empty",
        "inspect cifar10/R6_Ti_4 --images gone --output report.html",
        "classify empty",
        "few-shot cifar10/R6_Ti_4 folder:gone",
    ]
    (tmp_path / "empty").mkdir()
    code = "import sys; from keras_vit_cli.main import main; print([main(line.split()) for line in sys.argv[1:]]); "
    output = output_of(code + "print({*sys.modules})", *fine, *wrong, cwd=tmp_path)
    *_, statuses, modules = output.splitlines()
    assert ast.literal_eval(statuses) == [0] * len(fine) + [1] * len(wrong)
    assert not HEAVY & ast.literal_eval(modules)


def test_help_without_keras_or_tensorflow():
    code = "import sys; from keras_vit_cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    *help_text, modules = output_of(code + "print({*sys.modules})").splitlines()
    assert "few-shot" in "".join(help_text) and not HEAVY & ast.literal_eval(modules)


def test_without_a_backend_the_error_names_the_extra(tmp_path):
    (tmp_path / "keras.py").write_text("import tensorflow_of_nowhere")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", "import keras_vit"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "vit-for-keras[tensorflow]" in done.stderr.splitlines()[-1]
