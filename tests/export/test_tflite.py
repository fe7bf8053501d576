"""Real files in LiteRT's own interpreter."""

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export import FORMATS, write_tflite
from keras_vit.export.interpreter import run_tflite

TOLERANCE = {"float32": 1e-4, "float16": 5e-3, "dynamic-int8": 0.1, "int8": 0.2}


@pytest.mark.parametrize("name", FORMATS)
def test_probabilities_are_keras(artefacts, classifier, pictures, name):
    images, labels = pictures
    expected = tf.nn.softmax(classifier(images)).numpy()
    probabilities, milliseconds = run_tflite(artefacts[name], images)
    assert np.abs(probabilities - expected).max() <= TOLERANCE[name]
    assert (probabilities.argmax(-1) == labels).mean() >= 0.95
    assert milliseconds.shape == (60,) and (milliseconds > 0).all()


@pytest.mark.parametrize("name", FORMATS)
def test_only_builtin_operations_and_static_shapes(artefacts, name):
    interpreter = Interpreter(model_path=str(artefacts[name]))
    interpreter.allocate_tensors()
    operations = {operation["op_name"] for operation in interpreter._get_ops_details()}
    assert "FULLY_CONNECTED" in operations and "CONV_2D" in operations
    assert not [operation for operation in operations if operation.startswith("Flex") or operation == "CUSTOM"]
    # What an open batch would leave in the graph, and what phones' accelerators refuse.
    assert not operations & {"SHAPE", "BROADCAST_TO", "PACK", "EINSUM", "GATHER"}
    for details in interpreter.get_tensor_details():
        assert (details["shape_signature"] > 0).all() and len(details["shape"]) <= 5


def test_types_at_the_ends(artefacts):
    for name, dtype in (
        ("float32", np.float32),
        ("float16", np.float32),
        ("dynamic-int8", np.float32),
        ("int8", np.uint8),
    ):
        interpreter = Interpreter(model_path=str(artefacts[name]))
        (into,), (out,) = interpreter.get_input_details(), interpreter.get_output_details()
        assert (into["dtype"], out["dtype"]) == (dtype, dtype)
        assert interpreter.get_signature_list() == {"classify": {"inputs": ["images"], "outputs": ["probabilities"]}}


def test_int8_computes_in_integers(artefacts):
    interpreter = Interpreter(model_path=str(artefacts["int8"]))
    interpreter.allocate_tensors()
    floats = [details["name"] for details in interpreter.get_tensor_details() if details["dtype"] == np.float32]
    assert not floats


def test_quantization_makes_files_smaller(artefacts):
    sizes = {name: artefacts[name].stat().st_size for name in FORMATS}
    assert sizes["float16"] < 0.9 * sizes["float32"]
    assert sizes["dynamic-int8"] < sizes["float16"]


def test_bad_requests_are_refused_before_conversion(toy, tmp_path, pictures, monkeypatch):
    monkeypatch.setattr(tf.lite.TFLiteConverter, "from_saved_model", lambda *a, **k: pytest.fail("converted"))
    with pytest.raises(ValueError, match="float32, float16, dynamic-int8, int8. Received: \\['int4'\\]"):
        write_tflite(toy(), tmp_path, ["int4"])
    for calibration in (None, pictures[0][:3], np.zeros((50, 8, 8, 3), "float32")):
        with pytest.raises(ValueError, match=r"at least 20 pictures \(n, 16, 16, 3\)"):
            write_tflite(toy(), tmp_path, ["int8"], calibration)
    assert not list(tmp_path.iterdir())
