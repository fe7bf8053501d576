"""Which way the arrows point, and what is installed."""

import ast
import configparser
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from goldens import golden_file

ROOT = Path(__file__).parents[1]
PACKAGES = ("keras_vit", "recipes", "export", "cli")


def imported(folder, leave_out=()):
    """Every module that the files of a folder import, with the file."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        if any(part in leave_out for part in file.relative_to(ROOT / folder).parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from ((name, file) for name in names)


@pytest.mark.parametrize(
    "folder,leave_out,forbidden",
    [
        ("keras_vit", (), ("keras_vit.recipes", "keras_vit.export", "keras_vit_cli")),
        # TensorFlow's datasets and checkpoints, its lowering for XLA, the tape of gradients: imported in functions.
        (
            "keras_vit",
            (
                "first_batch.py",
                "model_garden.py",
                "keras_internals.py",
                "barriers.py",
                "islands.py",
                "recompute.py",
                "gradient_rollout.py",
            ),
            ("tensorflow", "jax"),
        ),
        ("recipes", (), ("keras_vit.export", "keras_vit_cli")),
        ("export", (), ("keras_vit.recipes", "keras_vit_cli")),
    ],
)
def test_arrows_point_one_way(folder, leave_out, forbidden):
    wrong = [(name, file) for name, file in imported(folder, leave_out) for root in forbidden if _within(name, root)]
    assert not wrong


def _within(name, root):
    return name == root or name.startswith(root + ".")


def test_every_package_is_installed():
    from setuptools import find_packages

    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    installed = set(find_packages(ROOT, **{k: v.split(", ") for k, v in config["options.packages.find"].items()}))
    folders = {file.parent.relative_to(ROOT) for top in PACKAGES for file in (ROOT / top).rglob("*.py")}
    names = {".".join(folder.parts) for folder in folders}
    assert installed == {_installed_as(name) for name in names}


def _installed_as(name):
    if name.startswith("keras_vit"):
        return name
    return name.replace("cli", "keras_vit_cli", 1) if name.startswith("cli") else f"keras_vit.{name}"


@pytest.mark.parametrize("folder", ["recipes", "export", "cli"])
def test_editors_and_type_checkers_find_the_packages_in_a_clone(folder):
    link = ROOT / _installed_as(folder).replace(".", "/")
    assert link.is_symlink() and link.samefile(ROOT / folder)


@pytest.mark.slow
def test_importing_the_core_brings_nothing_that_keras_does_not():
    code = (
        "import gc, sys; gc.disable(); import keras; before = set(sys.modules); import keras_vit; "
        "print({name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ast.literal_eval(done.stdout) <= {"keras_vit", "zipfile"}, done.stderr[-2000:]


def test_the_commands_list_without_keras_or_tensorflow():
    code = "import sys; from keras_vit_cli.main import main\ntry: main(['--help'])\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    *help_text, modules = done.stdout.splitlines()
    assert "few-shot" in "".join(help_text)
    assert not {"keras", "tensorflow", "jax", "torch"} & set(ast.literal_eval(modules))


@pytest.mark.parametrize("golden", [None, "vit_jax_prelogits", "timm_layerscale_reg", "hf_deit", "hf_siglip"])
def test_recipes_and_checkpoints_are_listed_without_keras(golden, tmp_path):
    arguments = ["describe", str(golden_file(tmp_path, golden))] if golden else ["train"]
    code = "import sys; from keras_vit_cli.main import main; print(main(sys.argv[1:]), sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    status, modules = done.stdout.splitlines()[-1].split(maxsplit=1)
    assert status == "0", done.stderr
    assert not {"keras", "tensorflow", "jax", "torch"} & set(ast.literal_eval(modules))


def test_mistakes_that_a_command_line_shows_are_reported_without_tensorflow(tmp_path):
    commands = (
        "train cifar10-10ep --total-steps 20",
        "train cifar10-scratch --data.dataset folder:gone",
        "sweep finetune-pets --recipe.weights gone.npz",
        "preflight cifar10-10ep --total-steps 20",
        "finetune gone --weights gone.npz",
        "finetune empty",
        "finetune one",
        "inspect cifar10/R6_Ti_4 --images gone --output report.html",
        "classify empty",
        "few-shot cifar10/R6_Ti_4 one",
    )
    for path in ("empty", "one/cat"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "one" / "cat" / "1.jpg").touch()
    code = "import sys; from keras_vit_cli.main import main; print([main(line.split()) for line in sys.argv[1:]]); "
    code += "print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, *commands], capture_output=True, text=True, cwd=tmp_path)
    statuses, modules = map(ast.literal_eval, done.stdout.splitlines())
    assert statuses == [1] * len(commands), done.stderr
    assert not {"keras", "tensorflow", "jax", "torch"} & set(modules)


def test_the_command_line_finds_every_public_name():
    code = (
        "import keras_vit_cli, sys, keras_vit; assert 'keras' not in sys.modules; from keras_vit import load, layers; "
        "print(keras_vit.__version__, load.__name__, keras_vit.ViT_B16.__name__, hasattr(keras_vit, 'no_such_name'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split()[1:] == ["load", "ViT_B16", "False"], done.stderr


@pytest.mark.parametrize("folder", PACKAGES)
def test_files_stay_short(folder):
    long = {
        str(file): lines
        for file in (ROOT / folder).rglob("*.py")
        if (lines := len(file.read_text().splitlines())) > 300
    }
    assert not long


def test_the_core_asks_for_keras_numpy_and_safetensors_only():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    needs = config["options"]["install_requires"].split()
    assert sorted(re.match(r"[\w-]+", line)[0] for line in needs) == ["keras", "numpy", "safetensors"]


def test_tensorflow_and_its_tpu_build_never_come_together():
    needs = importlib.metadata.requires("keras_vit")
    extras = {
        name: {re.search(r'extra == "(\w+)"', line)[1] for line in needs if re.match(name + r"[<>=]", line)}
        for name in ("tensorflow", "tensorflow-tpu")
    }
    assert extras == {"tensorflow": {"tensorflow"}, "tensorflow-tpu": {"tpu"}}


def test_without_a_backend_the_remedy_is_named(tmp_path):
    (tmp_path / "keras.py").write_text("import tensorflow_of_nowhere")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", "import keras_vit"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "pip install 'keras_vit[tensorflow]'" in done.stderr.splitlines()[-1]
