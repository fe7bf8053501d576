"""The wheel and the source archive: built as for release, used as installed."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BUILD = "from setuptools import build_meta as b; import sys; print(getattr(b, sys.argv[1])(sys.argv[2]))"
PLACES = {
    "keras_vit": "keras_vit",
    "recipes": "keras_vit/recipes",
    "export": "keras_vit/export",
    "cli": "keras_vit_cli",
}
SMOKE = """
import sys
import numpy as np, keras_vit
from keras_vit.export import write_tflite
from keras_vit.recipes.configs import digits
size = {"image_size": 32, "patch_size": 16, "depth": 1, "width": 16, "mlp_dim": 32, "num_heads": 2}
model = keras_vit.VisionTransformer(num_classes=3, **size)
assert model(np.zeros((2, 32, 32, 3), "float32")).shape == (2, 3)
assert len(keras_vit.class_names.imagenet_class_names(1000)) == 1000
print(write_tflite(model, sys.argv[1], ["float32"])["float32"].stat().st_size, keras_vit.__file__)
from keras_vit_cli.main import main
main(["--help"])
"""


def run(*arguments, **options):
    done = subprocess.run(map(str, arguments), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The source archive, unpacked: what it lacks, the wheel that is built of it lacks, too."""
    folder = tmp_path_factory.mktemp("sdist")
    tracked = tmp_path_factory.mktemp("tracked")
    for file in run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines():
        if os.path.lexists(ROOT / file) and not file.startswith(("tests/", "docs/")):
            (tracked / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, tracked / file, follow_symlinks=False)
    run(sys.executable, "-c", BUILD, "build_sdist", folder, cwd=tracked)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    return tracked, unpacked


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-c", BUILD, "build_wheel", folder, cwd=source[1])
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as content:
        content.extractall(folder / "installed")
    return folder / "installed"


def test_the_wheel_has_every_file_of_the_packages(source, wheel):
    expected = {
        f"{place}/{path.relative_to(source[0] / top).as_posix()}"
        for top, place in PLACES.items()
        for path in (source[0] / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file()}
    assert {name for name in found if ".dist-info/" not in name} == expected
    assert any(".dist-info/" in name and name.endswith("/LICENSE") for name in found) and "keras_vit/py.typed" in found


def test_what_is_installed_works(wheel, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(wheel), "KERAS_BACKEND": "tensorflow"}
    output = run(sys.executable, "-c", SMOKE, tmp_path / "out", env=environment, cwd=tmp_path)
    size, file, *listed = output.split()
    assert int(size) > 10_000 and file == str(wheel / "keras_vit" / "__init__.py")
    assert {"preflight", "export"} <= {*listed}


def test_files_of_another_project_are_reported_on_import(wheel, tmp_path):
    """PyPI's keras-vit 1.0.1 has config, layers, utils and vit in the folder of the same name."""
    shutil.copytree(wheel / "keras_vit", tmp_path / "keras_vit", ignore=shutil.ignore_patterns("trained"))
    code = "import sys; sys.modules['keras_vit_cli'] = None; import keras_vit"  # without Keras, as the command line
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "error"}
    run(sys.executable, "-c", code, env=environment, cwd=tmp_path)
    (tmp_path / "keras_vit" / "utils.py").touch()
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "pip uninstall -y keras-vit" in done.stderr
