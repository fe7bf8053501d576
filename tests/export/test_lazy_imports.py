"""Importing the package is cheap, and no submodule shadows a public name. In a new process: tests import submodules."""

import os
import subprocess
import sys

import pytest

CODE = """
import importlib, sys
import keras_vit.export
assert not {"tensorflow", "ai_edge_litert", "onnx"} & set(sys.modules)
for package in ("keras_vit.export", "keras_vit.export.audit", "keras_vit.export.benchmark"):
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    print(*(name for name in names if callable(getattr(module, name))))
"""


@pytest.mark.slow
def test_import_loads_no_tensorflow_and_no_submodule_shadows_a_public_name():
    """With another backend: on TensorFlow, Keras itself imports it."""
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    names = "Description Parity check_parity parity_table read_description with_metadata write_onnx write_saved_model "
    names += "write_tflite write_web_page Audit Finding audit Benchmark compare table"
    assert set(done.stdout.split()) == set(names.split())
