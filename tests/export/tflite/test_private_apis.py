"""The private APIs that the exports use still exist; a failure names the one that moved."""

import importlib
import operator

import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.tflite import private_apis


def test_private_names_exist():
    names = "ai_edge_litert.interpreter:Interpreter._get_ops_details flatbuffers:Builder.Prep "
    for name in (names + "flatbuffers:Builder.CreateNumpyVector").split():
        module, _, path = name.partition(":")
        assert operator.attrgetter(path)(importlib.import_module(module))


@pytest.mark.slow
def test_operation_details(artifacts):
    interpreter = Interpreter(model_path=str(artifacts["float32"]))
    interpreter.allocate_tensors()
    nodes = private_apis.operation_details(interpreter)
    assert set(nodes[0]) >= {"index", "op_name", "inputs", "outputs"} and nodes[-1]["op_name"] == "DELEGATE"
