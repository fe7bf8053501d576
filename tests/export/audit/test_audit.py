"""Audits of .tflite files with operations that some accelerators do not support."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.audit import TARGETS, audit
from keras_vit.export.tflite.graph import read_delegation, read_graph
from keras_vit.export.tflite.private_apis import operation_details

pytestmark = pytest.mark.slow

WEIGHTS = np.random.default_rng(0).normal(size=(32, 32)).astype("float32")


@pytest.fixture
def converted(tmp_path):
    """Converts a function of one tensor; `quantize` is "int8" or "dynamic"."""

    def convert(function, shape, dtype=tf.float32, quantize=None, flex=False, **settings):
        function = tf.function(function, input_signature=[tf.TensorSpec(shape, dtype)])
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        for name, value in settings.items():
            setattr(converter, name, value)
        if flex:
            converter.target_spec.supported_ops.append(tf.lite.OpsSet.SELECT_TF_OPS)
        if quantize:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantize == "int8":
            random = np.random.default_rng(0)
            samples = [random.normal(size=shape).astype("float32") for _ in range(20)]
            converter.representative_dataset = lambda: ([sample] for sample in samples)
            converter.target_spec.supported_ops.append(tf.lite.OpsSet.TFLITE_BUILTINS_INT8)
        path = tmp_path / "converted.tflite"
        path.write_bytes(converter.convert())
        return path

    return convert


def unsupported(path, target):
    """Operations that a target does not support, with their counts."""
    counts = Counter()
    for finding in audit(path, [target]).findings:
        counts[finding.operation] += finding.count
    return counts


def test_index_drops_an_axis(converted):
    path = converted(lambda x: x[:, 0], (1, 4, 8))
    for target in ("cpu-xnnpack", "gpu", "litert2"):
        (finding,) = audit(path, [target]).findings
        assert (finding.operation, finding.dtype, finding.count) == ("STRIDED_SLICE", "float32", 1)
        assert "x[:, :1]" in finding.reason and finding.location.startswith("operation 0")
    slice_and_reshape = converted(lambda x: tf.reshape(x[:, :1], (1, 8)), (1, 4, 8))
    assert not audit(slice_and_reshape, ["cpu-xnnpack", "gpu", "litert2"]).findings


def test_five_axes_and_open_batch(converted):
    path = converted(lambda x: tf.transpose(tf.reshape(x, (1, 4, 3, 2, 4)), (2, 0, 3, 1, 4)) * 2.0, (1, 4, 24))
    for target in ("gpu", "litert2"):
        assert unsupported(path, target) == {"RESHAPE": 1, "MUL": 1, "TRANSPOSE": 1}
        assert "5 axes" in audit(path, [target]).findings[0].reason
    path = converted(lambda x: tf.nn.relu(x @ WEIGHTS), (None, 32))
    assert not audit(path, ["cpu-xnnpack"]).findings
    assert "[-1, 32] has an open axis" in audit(path, ["gpu"]).findings[0].reason


ALL = {*TARGETS}
CASES = [
    ("GATHER", {"cpu-xnnpack"}, lambda x: tf.gather(x, [0, 2], axis=1), (1, 4, 8), tf.float32),
    ("BROADCAST_TO", ALL, lambda x: tf.broadcast_to(x, (1, 4, 8)) + 0 * x, (1, 1, 8), tf.float32),
    ("ADD", ALL, lambda x: x + tf.constant([3], tf.int64), (1, 8), tf.int64),
    ("CAST", {"cpu-xnnpack", "gpu"}, lambda x: tf.cast(x, tf.float32) / 255, (1, 8, 8, 3), tf.uint8),
    ("ADD", {"gpu"}, lambda x: x + x[0], (1, 4, 8), tf.float32),
    ("BATCH_MATMUL", {"gpu", "litert2"}, lambda x: tf.matmul(x, x, transpose_b=True), (1, 2, 4, 8), tf.float32),
    ("BATCH_MATMUL", ALL - {"cpu-xnnpack"}, lambda x: tf.matmul(WEIGHTS[:4, :8], x), (2, 8, 4), tf.float32),
    ("TILE", {"cpu-xnnpack"}, lambda x: tf.tile(x, (1, 2, 1)), (1, 4, 8), tf.float32),
    ("PACK", {"cpu-xnnpack"}, lambda x: tf.stack([x, 2 * x]), (1, 8), tf.float32),
    ("L2_NORMALIZATION", ALL, lambda x: tf.math.l2_normalize(x, -1), (1, 8), tf.float32),
]


@pytest.mark.parametrize("operation,targets,function,shape,dtype", CASES)
def test_targets_without_support(converted, operation, targets, function, shape, dtype):
    findings = audit(converted(function, shape, dtype)).findings
    failing = {finding.target for finding in findings if finding.operation == operation}
    assert failing == targets


def test_flex_operations(converted):
    path = converted(tf.math.erf, (1, 8), flex=True)
    for target in TARGETS:
        assert unsupported(path, target) == {"FlexErf": 1}
    assert "Flex library" in audit(path, ["gpu"]).findings[0].reason


def test_dynamic_range_weights(converted):
    path = converted(lambda x: tf.nn.relu(x @ WEIGHTS), (4, 32), quantize="dynamic")
    assert [operation.dtype for operation in read_graph(path)] == ["float32 x int8"]
    (finding,) = audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings
    assert (finding.target, finding.operation) == ("gpu", "FULLY_CONNECTED")  # of version 12


def test_int8_products_of_activations(converted):
    path = converted(lambda x: tf.nn.softmax(tf.matmul(x, 2 * x, transpose_b=True)), (1, 2, 4, 8), quantize="int8")
    assert unsupported(path, "cpu-xnnpack").items() >= {("BATCH_MATMUL", 1), ("SOFTMAX", 1)}
    assert "XNNPACK's SOFTMAX supports float only" in str(audit(path, ["cpu-xnnpack"]))


@pytest.mark.parametrize("name", ["float32", "float16", "dynamic-int8", "int8"])
def test_delegation_is_that_of_the_interpreter(artifacts, name):
    operations = read_graph(artifacts[name])
    interpreter = Interpreter(model_path=str(artifacts[name]))
    interpreter.allocate_tensors()
    delegation = read_delegation(artifacts[name], operations)
    assert sorted(delegation.delegated + delegation.not_delegated) == list(range(len(operations)))
    assert delegation.num_partitions == len(operation_details(interpreter)) - len(operations) >= 1
    running = [index for index in delegation.not_delegated if operations[index].runtime_inputs]
    assert sum(unsupported(artifacts[name], "cpu-xnnpack").values()) == len(running)


def test_read_graph(artifacts):
    operations = read_graph(artifacts["float32"])
    interpreter = Interpreter(model_path=str(artifacts["float32"]))
    assert [one.name for one in operations] == [details["op_name"] for details in operation_details(interpreter)]
    image, kernel, _ = next(one.inputs for one in operations if one.name == "CONV_2D")
    assert (image.shape, image.constant, kernel.shape) == ((1, 16, 16, 3), False, (32, 4, 4, 3))
    assert kernel.values().shape == (32, 4, 4, 3) and kernel.values().std() > 0


def test_weights_after_the_flatbuffer(converted):
    """As in files of 2 GB and more."""
    path = converted(lambda x: tf.reduce_mean(x @ WEIGHTS, (1, 2)), (1, 4, 32), _experimental_use_buffer_offset=True)
    axes = next(operation.inputs[1] for operation in read_graph(path) if operation.name == "MEAN")
    assert axes.constant and axes.values().tolist() == [1, 2]


def test_report(converted):
    found = audit(converted(lambda x: tf.nn.gelu(x, True)[:, 0], (1, 4, 8)))
    assert found.fails("gpu") and found.of("gpu")[0].operation == "STRIDED_SLICE"
    assert "gpu: 1 not delegated\n     1 STRIDED_SLICE (float32): " in str(found)
    assert found.num_operations == 2 and found.findings[0].target == "cpu-xnnpack"
    clean = audit(converted(lambda x: 2 * x, (1, 8)), ["gpu"])
    assert not clean.fails("gpu") and str(clean).endswith("gpu: fully delegated")
    with pytest.raises(ValueError, match="gpu. Received: 'litert2'"):
        clean.fails("litert2")


def test_every_signature_is_examined(tmp_path):
    spec = tf.TensorSpec((1, 8), tf.float32)
    module = tf.Module()
    module.first = tf.function(lambda x: {"y": 2 * x}, [spec])
    module.second = tf.function(lambda x: {"y": tf.cumsum(x, 1)}, [spec])
    tf.saved_model.save(module, tmp_path / "model", {"a": module.first, "b": module.second})
    path = tmp_path / "two.tflite"
    path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "model"), ["a", "b"]).convert())
    found = audit(path, ["cpu-xnnpack"]).findings
    assert [(one.operation, one.count) for one in found] == [("CUMSUM", 1)] and "of subgraph 1" in found[0].location


@pytest.mark.extended
def test_npu_of_a_chip(artifacts):
    found = audit(artifacts["dynamic-int8"], ["npu:SM8750", "litert2"])
    assert not found.of("npu:SM8750") and "npu:SM8750: fully delegated" in str(found)
    found = audit(artifacts["float32"], ["npu:SM8350"])
    (finding,) = found.findings
    assert finding.count == found.num_operations and "int8" in finding.reason
    assert not audit(artifacts["int8"], ["npu:sm8350"]).fails("npu:sm8350")


def test_invalid_targets_and_files(artifacts, tmp_path):
    path, whole = tmp_path / "bad.tflite", artifacts["float32"].read_bytes()
    for targets in (["npu"], ["gpu", "tpu"], [], "gpu"):
        with pytest.raises(ValueError, match="cpu-xnnpack, gpu, litert2"):
            audit(path, targets)
    with pytest.raises(ValueError, match="SM8750"):
        audit(artifacts["int8"], ["npu:SM8751"])
    contents = {b"": "0 bytes", b"PK\3\4 a .keras file": "exported first", b"TF": "not a .tflite file"}
    contents |= {whole[: len(whole) // 2]: "truncated", b"\x1c\0\0\0TFL3" + bytes(100): "damaged"}
    for content, message in contents.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            audit(path)
    with pytest.raises(ValueError, match="is a folder"):
        audit(artifacts["saved_model"])
    with pytest.raises(FileNotFoundError):
        audit(tmp_path / "nowhere.tflite")
