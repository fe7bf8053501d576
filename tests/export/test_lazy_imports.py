"""Importing the package is cheap, and every public name is there. In new processes: other tests import submodules."""

import os
import subprocess
import sys

import pytest

import keras_vit.export

pytestmark = pytest.mark.slow


def test_import_loads_no_tensorflow_and_no_submodule_shadows_a_public_name():
    """With another backend: on TensorFlow, Keras itself imports it."""
    code = """
import importlib, sys
import keras_vit.export
print({"tensorflow", "ai_edge_litert", "onnx"} & set(sys.modules))
for package in ("keras_vit.export", "keras_vit.export.audit", "keras_vit.export.benchmark"):
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]:
        thing = getattr(module, name)
        if type(thing).__name__ != "module":
            print(name, callable(thing) or type(thing).__name__)
"""
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    imported, *lines = done.stdout.splitlines()
    assert imported == "set()"
    found = dict(line.split() for line in lines)
    constants = {name: found.pop(name) for name in ("FORMATS", "TARGETS")}
    assert set(constants.values()) == {"tuple"} and set(found.values()) == {"True"}
    names = "Description Parity check_parity parity_table read_description with_metadata write_onnx write_saved_model "
    names += "write_tflite write_web_page Audit Finding audit Benchmark as_json benchmark compare table"
    assert set(found) == set(names.split())


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="keras_vit.export attribute write_coreml"):
        _ = keras_vit.export.write_coreml
    assert "write_tflite" in dir(keras_vit.export)
