"""The private APIs that the exports use still exist; a failure names the one that moved."""

import ctypes
import importlib
import inspect
import re
from importlib.metadata import version
from pathlib import Path

import ai_edge_litert
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export import private_apis
from keras_vit.export.benchmark import worker

pytestmark = pytest.mark.slow

PRIVATE = {
    "ai-edge-litert": ["ai_edge_litert.interpreter:Interpreter._get_ops_details"],
    "flatbuffers": ["flatbuffers:Builder.Prep", "flatbuffers:Builder.CreateNumpyVector"],
    "tf2onnx": ["tf2onnx.handler:tf_op"],
}


@pytest.mark.parametrize("package,name", [(package, name) for package, names in PRIVATE.items() for name in names])
def test_private_name_exists(package, name):
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute, None)
        assert found, f"{package} {version(package)} has no {name}; update {private_apis.__file__}"


def test_interpreter_has_the_experimental_arguments():
    arguments = set(inspect.signature(Interpreter).parameters)
    missing = {"experimental_preserve_all_tensors", "experimental_op_resolver_type"} - arguments
    assert not missing, f"Interpreter of ai-edge-litert {version('ai-edge-litert')} has no argument {missing}"


def test_operation_details_and_intermediate_tensors(artifacts, images):
    interpreter = private_apis.inspectable_interpreter(artifacts["float32"].read_bytes())
    interpreter.allocate_tensors()
    nodes = private_apis.operation_details(interpreter)
    assert nodes and set(nodes[0]) >= {"index", "op_name", "inputs", "outputs"}
    assert "DELEGATE" not in {node["op_name"] for node in nodes}
    (entry,) = interpreter.get_input_details()
    interpreter.set_tensor(entry["index"], images[:1])
    interpreter.invoke()
    # The first operation's output would have been overwritten by later ones.
    first = interpreter.get_tensor(int(nodes[0]["outputs"][0]))
    interpreter.set_tensor(entry["index"], images[1:2])
    interpreter.invoke()
    assert not np.array_equal(first, interpreter.get_tensor(int(nodes[0]["outputs"][0])))


def test_c_library_has_the_functions_of_the_profiler():
    source = Path(worker.__file__).read_text().replace("{kind}", "Input")
    names = set(re.findall(r'"(LiteRt[A-Z]\w+)"', source))
    (file,) = Path(ai_edge_litert.__file__).parent.glob("libLiteRt.so")
    library = ctypes.CDLL(str(file))
    missing = {name for name in names if not hasattr(library, name)}
    assert len(names) > 15 and not missing, f"libLiteRt of {version('ai-edge-litert')} has no {missing}"
