"""Every format in older runtimes: the classes are today's, or the runtime refuses the file, as the file states.

The runtimes are installed from the package index on first use, into pytest's cache (1.6 GB). Of TensorFlow 2.20 and
LiteRT 2.3, see test_integers.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_vit.export import FORMATS
from keras_vit.export.tflite.description import LITERT
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.export.tflite.metadata import read_description

CLIENT = Path(__file__).with_name("runtime_client.py")
# Those that change an answer; each with its version of TensorFlow's or LiteRT's, as `read_description` states them.
RUNTIMES = {
    "tflite-runtime==2.14.0": "2.14",
    "tensorflow-cpu==2.16.2": "2.16",
    "ai-edge-litert==1.0.1": "1.0",
    "ai-edge-litert==1.4.0": "1.4",
    "ai-edge-litert==2.1.0": "2.1",
}
PYTHON = (3, 11)  # of the oldest wheels


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request):
    """A requirement, and the folder where it is installed; the test is skipped without a network."""
    folder = Path(request.config.cache.mkdir("runtimes")) / request.param
    if sys.version_info[:2] != PYTHON:
        pytest.skip("the wheels of the oldest runtimes are for Python 3.11")
    if not (folder / "complete").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--upgrade", "--target", folder]
        done = subprocess.run([*command, request.param, "numpy<2"], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{request.param} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        (folder / "complete").touch()
    return request.param, folder


def answers(folder, files, images, tmp_path) -> dict:
    """Format -> the classes of the images, or the error, in a process with the packages of a folder alone."""
    np.save(tmp_path / "images.npy", images)
    environment = {**os.environ, "PYTHONPATH": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys._base_executable, "-S", CLIENT, tmp_path / "images.npy", *files.values()]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: found[str(file)] for name, file in files.items()}


def is_old_enough(file, requirement) -> bool:
    """Whether a file states that a runtime can run it."""
    stated = read_description(file).min_runtime
    if requirement.startswith("ai-edge"):
        stated = LITERT[stated]
    return as_numbers(stated) <= as_numbers(RUNTIMES[requirement])


def as_numbers(version) -> list[int]:
    return [int(part) for part in version.split(".")][:2]


@pytest.mark.extended
def test_old_runtimes_refuse_a_file_or_classify_as_today(runtime, artifacts, images, tmp_path):
    requirement, folder = runtime
    files = {name: artifacts[name] for name in FORMATS}
    found = answers(folder, files, images, tmp_path)
    for name, file in files.items():
        if is_old_enough(file, requirement):
            assert found[name] == run_tflite(file, images)[0].argmax(-1).tolist(), name
        else:
            assert isinstance(found[name], str), f"{name} ran in {requirement}"
