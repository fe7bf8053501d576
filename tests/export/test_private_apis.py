"""The private APIs that the exports use still exist; a failure names the one that moved."""

import importlib
import inspect
import operator

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export import private_apis


def test_private_names_exist():
    names = "ai_edge_litert.interpreter:Interpreter._get_ops_details flatbuffers:Builder.Prep "
    for name in (names + "flatbuffers:Builder.CreateNumpyVector").split():
        module, _, path = name.partition(":")
        assert operator.attrgetter(path)(importlib.import_module(module))
    arguments = {"experimental_preserve_all_tensors", "experimental_op_resolver_type"}
    assert arguments <= set(inspect.signature(Interpreter).parameters)


@pytest.mark.slow
def test_operation_details_and_intermediate_tensors(artifacts, images):
    interpreter = private_apis.inspectable_interpreter(artifacts["float32"].read_bytes())
    interpreter.allocate_tensors()
    nodes = private_apis.operation_details(interpreter)
    assert nodes and set(nodes[0]) >= {"index", "op_name", "inputs", "outputs"}
    assert "DELEGATE" not in {node["op_name"] for node in nodes}
    (entry,) = interpreter.get_input_details()
    # The first operation's output would have been overwritten by later ones.
    outputs = []
    for image in images[:2]:
        interpreter.set_tensor(entry["index"], image[None])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(int(nodes[0]["outputs"][0])))
    assert not np.array_equal(*outputs)
