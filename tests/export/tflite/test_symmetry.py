"""Products of two int8 tensors run in XNNPACK."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.private_apis import operation_details
from keras_vit.export.tflite.graph import read_graph
from keras_vit.export.tflite.interpreter import read_delegation
from keras_vit.export.tflite.symmetry import symmetric_ranges

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["mixed-int8", "int8"])
def test_xnnpack_multiplies_queries_keys_and_values(artifacts, name):
    operations = read_graph(artifacts[name])
    products = [one for one in operations if one.name == "BATCH_MATMUL"]
    integers = [one for one in products if one.dtype == "int8"]
    # mixed-int8: only queries with keys. int8: queries, keys and values, and the variances of five normalizations.
    assert (len(integers), len(products)) == ((2, 4) if name == "mixed-int8" else (9, 9))
    left = read_delegation(artifacts[name], operations).not_delegated
    assert not [one for one in products if one.index in left]


def test_zero_points_of_right_operands(artifacts):
    interpreter = Interpreter(model_path=str(artifacts["int8"]))
    interpreter.allocate_tensors()
    points = {one["index"]: one["quantization"][1] for one in interpreter.get_tensor_details()}
    products = [one for one in operation_details(interpreter) if one["op_name"] == "BATCH_MATMUL"]
    assert [points[int(one["inputs"][1])] for one in products] == [0] * 9


def test_int8_runs_in_one_partition_more_than_blocks(artifacts):
    operations = read_graph(artifacts["int8"])
    delegation = read_delegation(artifacts["int8"], operations)
    left = {operations[index].name for index in delegation.not_delegated}
    assert left == {"SOFTMAX", "GELU", "QUANTIZE"}  # that of the classes, not those of attention
    assert delegation.num_partitions == 3  # 13 where there are twelve blocks


def test_ranges_are_widened_only(artifacts):
    float32 = artifacts["float32"].read_bytes()
    tensors = {tensor.name: tensor for one in read_graph(artifacts["float32"]) for tensor in one.outputs}
    ranges = {name: {"min": np.float32(-1.0), "max": np.float32(3.0)} for name in tensors}
    changed = symmetric_ranges(float32, ranges)
    widened = [name for name in ranges if changed[name] is not ranges[name]]
    assert 2 <= len(widened) < len(ranges) / 2
    for name in widened:
        assert changed[name]["max"] == pytest.approx(3.0)
        assert changed[name]["min"] == pytest.approx(-128 / 127 * 3.0)
