"""A file in the format "int8" has integers only, also in operations that litert-quantizer leaves in float."""

import numpy as np
import pytest
from ai_edge_litert.schema_py_generated import BuiltinOperator

from keras_vit.export import write_tflite
from keras_vit.export.tflite.flatbuffer import unpack_model
from keras_vit.export.tflite.graph import read_graph
from keras_vit.export.tflite.integer_ops import with_integer_operations
from keras_vit.export.tflite.interpreter import run_tflite

pytestmark = pytest.mark.slow


def test_integers_only(artifacts):
    operations = read_graph(artifacts["int8"])
    dtypes = {tensor.dtype for one in operations for tensor in (*one.inputs, *one.outputs)}
    assert dtypes == {"uint8", "int8", "int32"}  # int32: biases, shapes and axes
    assert "DEQUANTIZE" not in {one.name for one in operations}


def test_version_of_an_operation_with_integers(artifacts):
    codes = unpack_model(artifacts["int8"].read_bytes()).operatorCodes
    assert [code.version for code in codes if code.builtinCode == BuiltinOperator.REDUCE_MAX] == [2]


def test_scales_of_exponentials(artifacts):
    (graph,) = unpack_model(artifacts["int8"].read_bytes()).subgraphs
    scales = {}
    for one in read_graph(artifacts["int8"]):
        if one.name in ("ELU", "REDUCE_MAX"):
            tensors = [graph.tensors[tensor.index].quantization for tensor in (one.inputs[0], one.outputs[0])]
            scales.setdefault(one.name, []).append([(x.scale[0], x.zeroPoint[0]) for x in tensors])
    assert len(scales["ELU"]) == len(scales["REDUCE_MAX"]) == 2
    for before, after in scales["REDUCE_MAX"]:
        assert before == after
    for (scale, zero), after in scales["ELU"]:
        assert (-128 - zero) * scale == pytest.approx(-6.5, rel=0.01) and zero == 127
        assert after == (pytest.approx(1 / 255), 127)


def test_attention_maps_in_integers(classifier, images, tmp_path):
    """Nothing reads the last block's values, and XNNPACK refuses a SPLIT with parts of several types."""
    files = write_tflite(classifier, tmp_path, ["float32", "int8"], images, signatures=["attention"])
    expected, found = (run_tflite(files[name], images, "attention")[0] for name in ("float32", "int8"))
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99


def test_floats_stay(artifacts):
    """Files without such a pair of conversions are not changed."""
    before = read_graph(artifacts["float32"])
    path = artifacts["float32"].with_name("same.tflite")
    path.write_bytes(with_integer_operations(artifacts["float32"].read_bytes()))
    assert [one.name for one in read_graph(path)] == [one.name for one in before]
    assert "REDUCE_MAX" in {one.name for one in before}
