"""Files with integers: ranges of activations, rounding of weights, and operations that XNNPACK runs."""

from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.schema_py_generated import BuiltinOperator, ModelT, TensorType

from keras_vit.export import FORMATS, write_tflite
from keras_vit.export.exported.parity import logit_cosine
from keras_vit.export.tflite.arithmetic import watch_norms
from keras_vit.export.tflite.calibration import Float32File
from keras_vit.export.tflite.encoder import normalize
from keras_vit.export.tflite.equalize import fold_pixels, folded_copy, rotate_tokens
from keras_vit.export.tflite.flatbuffer import pack_model, unpack_model
from keras_vit.export.tflite.graph import read_delegation, read_graph, run_tflite
from keras_vit.export.tflite.metadata import read_description
from keras_vit.export.tflite.quantize import use_integer_operations
from keras_vit.export.tflite.ranges import activation_ranges
from keras_vit.export.tflite.rounding import round_weights
from keras_vit.export.tflite.signatures import measure_square_sums, signature_function
from keras_vit.inspect.attention import rollout

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def float32(artifacts):
    return artifacts["float32"].read_bytes()


def test_ranges_cover_all_images(float32, images):
    ranges, *single = (activation_ranges(Float32File(float32, some)) for some in (images[:3], *images[:3, None]))
    assert len(ranges) > 50 and all(one.keys() == ranges.keys() for one in single)
    for name, ends in ranges.items():
        assert ends["min"].item() == min(one[name]["min"].item() for one in single)
        assert ends["max"].item() == max(one[name]["max"].item() for one in single)
    assert any(ranges[name]["max"].item() > single[0][name]["max"].item() for name in ranges)
    for name, ends in activation_ranges(Float32File(float32, images[:3]), narrow=True).items():
        low, halfway = (np.quantile([one[name]["min"].item() for one in single], q) for q in (0, 0.5))
        halfway = (low + halfway) / 2
        if "embedding" in name:
            assert ends["min"].item() == pytest.approx(halfway)
        assert ends["min"].item() in (pytest.approx(low), pytest.approx(halfway))
    assert sum("embedding" in name for name in ranges) >= 2
    pixels = next(value for name, value in ranges.items() if "images" in name)
    assert (pixels["min"].item(), pixels["max"].item()) == (0, 255)


def test_square_sums_of_both_tokens_of_deit(trained_toy, images):
    """Its last normalization is called once for each token."""
    copy = folded_copy(trained_toy(distillation=True, depth=1))
    image = tf.constant(images[:1], "float32")

    @tf.function
    def last_sums():
        with watch_norms() as seen:
            signature_function(copy, "classify")(image)
        return [of_call for norm, of_call in seen if norm is copy.encoder.norm]

    sums = [np.asarray(of_call).item() for of_call in last_sums()]
    measure_square_sums(copy, "classify", image)
    assert len(sums) == 2 and sums[0] != sums[1]
    assert copy.encoder.norm.square_sums == pytest.approx((min(sums) / 2, max(sums)), rel=1e-3)
    norm, tokens = copy.encoder.blocks[0].norm_attention, copy.add_tokens(copy.embed(image / 127.5 - 1)).numpy()
    sums = 12 * tokens.var(axis=-1)
    assert norm.square_sums == pytest.approx((sums.min() / 2, sums.max()), rel=1e-3)


@pytest.mark.parametrize("name", ["dynamic-int8", "mixed-int8", "int8", "int16x8"])
def test_weights_have_a_scale_for_each_output_channel(artifacts, name):
    model = unpack_model(artifacts[name].read_bytes())
    (graph,) = model.subgraphs
    codes = [code.builtinCode for code in model.operatorCodes]
    linear = (BuiltinOperator.FULLY_CONNECTED, BuiltinOperator.CONV_2D)
    weights = [graph.tensors[one.inputs[1]] for one in graph.operators if codes[one.opcodeIndex] in linear]
    weights = [weight for weight in weights if tuple(weight.shape[1:3]) != (1, 1)]  # of `piecewise` in int8
    assert len(weights) == 12  # patches, 4 in a block, 5 in the last, the rotation back, the head
    floats = [weight for weight in weights if weight.type == TensorType.FLOAT32]
    assert [len(one.shape) for one in floats] == ([4] if name in ("dynamic-int8", "mixed-int8") else [])  # patches
    for weight in (weight for weight in weights if weight.type != TensorType.FLOAT32):
        assert len(weight.quantization.scale) == weight.shape[0] > 1


@pytest.mark.parametrize("name", FORMATS)
def test_readers_of_the_deprecated_operator_code_see_the_same_operation(artifacts, name):
    """The schema asks for the smaller of the code and 127; here the flatbuffer is read without our own reader."""
    codes = ModelT.InitFromPackedBuf(artifacts[name].read_bytes()).operatorCodes
    assert [code.deprecatedBuiltinCode for code in codes] == [min(code.builtinCode, 127) for code in codes]
    assert max(code.builtinCode for code in codes) > 0


# Version of FULLY_CONNECTED and oldest TensorFlow, of LiteRT's op_version.cc and runtime_version.cc; those of
# "int4-weights" were tried with LiteRT 1.0, 1.4, 2.0.3 and 2.1.
RUNTIMES = {
    "float32": (5, "2.9.0"),
    "dynamic-int8": (12, "2.17.0"),
    "int4-weights": (14, "2.21.0"),
    "mixed-int8": (12, "2.17.0"),
    "int8": (5, "2.9.0"),
    "int16x8": (5, "2.20.0"),
}


@pytest.mark.parametrize("name", RUNTIMES)
def test_old_runtimes_reject_a_file_or_compute_it(artifacts, images, name):
    """TensorFlow 2.20 has an interpreter of its own, without the kernel of 4-bit blocks."""
    model = unpack_model(artifacts[name].read_bytes())
    versions = [one.version for one in model.operatorCodes if one.builtinCode == BuiltinOperator.FULLY_CONNECTED]
    assert (*versions, read_description(artifacts[name]).min_runtime) == RUNTIMES[name]
    new, _ = run_tflite(artifacts[name], images)
    try:
        interpreter = tf.lite.Interpreter(str(artifacts[name]))
    except ValueError as error:
        assert name == "int4-weights" and "FULLY_CONNECTED" in str(error)
        return
    run = interpreter.get_signature_runner("classify")
    dtype, (scale, zero) = run.get_input_details()["images"]["dtype"], (1, 0)
    if name == "int8":
        scale, zero = run.get_output_details()["probabilities"]["quantization"]
    old = np.stack([run(images=image[None].astype(dtype))["probabilities"][0] for image in images])
    np.testing.assert_allclose((old.astype("float32") - zero) * scale, new, atol=0.1)


@pytest.mark.parametrize(("width", "block"), [(64, 32), (36, 36)])
def test_errors_of_rounding_cancel_in_the_outputs(width, block):
    random, errors = np.random.default_rng(0), []
    inputs = random.standard_normal((400, 8)) @ random.standard_normal((8, width))
    inputs += 0.1 * random.standard_normal((400, width))
    weights = random.standard_normal((16, width))
    for moments in (inputs.T @ inputs, np.eye(width)):  # uncorrelated inputs: the nearest integers
        integers, scales = round_weights(weights, moments, 4, block)
        assert integers.dtype == np.int8 and integers.min() >= -8 and integers.max() <= 7
        assert scales.shape == (16, width // block)
        np.testing.assert_array_equal(scales, tf.cast(tf.cast(scales, tf.bfloat16), tf.float32))
        rounded = integers * np.repeat(scales, block, axis=1)
        assert np.abs(rounded - weights).max() < 1.5
        errors.append(np.square(inputs @ (rounded - weights).T).mean())
    assert errors[0] < 0.3 * errors[1], errors
    integers, scales = round_weights(np.zeros((3, 32)), np.zeros((32, 32)), 4, 32)
    assert not integers.any() and np.isfinite(scales).all()


def test_calibration_images_that_are_all_alike(classifier, images, tmp_path):
    for path in write_tflite(
        classifier, tmp_path, ["int4-weights", "int8"], np.repeat(images[:1], 20, axis=0)
    ).values():
        assert np.isfinite(run_tflite(path, images[:2])[0]).all()


def test_no_single_integer_lowers_the_error():
    random = np.random.default_rng(0)
    inputs = random.standard_normal((400, 8)) @ random.standard_normal((8, 64)) + random.standard_normal((400, 64))
    weights, moments = random.standard_normal((16, 64)), inputs.T @ inputs / 400
    integers, scales = round_weights(weights, moments, 4, 32)
    scales = np.repeat(scales, 32, axis=1)
    moments += 0.01 * np.diag(moments).mean() * np.eye(64)  # the damping of GPTQ
    slopes = 2 * (integers * scales - weights) @ moments
    better = []
    for step in (-1, 1):
        changes = step * slopes * scales + scales**2 * np.diag(moments)
        better.append((changes < -1e-6) & (-8 <= integers + step) & (integers + step <= 7))
    assert np.mean(better) < 0.005, np.mean(better)  # of GPTQ alone: 0.04


def test_moments_of_few_tokens_count_less():
    """On the covariance that the tokens were drawn from."""
    random, errors = np.random.default_rng(0), []
    mixing = random.standard_normal((64, 64)) * np.geomspace(1, 0.1, 64)
    inputs, weights = random.standard_normal((40, 64)) @ mixing.T, random.standard_normal((64, 64))
    for tokens in (np.inf, 40):
        integers, scales = round_weights(weights, inputs.T @ inputs, 4, 32, tokens)
        errors.append(np.square((integers * np.repeat(scales, 32, axis=1) - weights) @ mixing).sum())
    assert errors[1] < 0.9 * errors[0], errors


def test_calibrated_weights_of_8_bits_are_more_accurate(classifier, images, artifacts, tmp_path):
    (plain,) = write_tflite(classifier, tmp_path, ["dynamic-int8"]).values()
    expected = np.asarray(tf.nn.softmax(classifier(normalize(images, classifier.preprocessing))))
    errors = [
        1 - logit_cosine(run_tflite(path, images)[0], expected).mean() for path in (artifacts["dynamic-int8"], plain)
    ]
    assert errors[0] < 0.9 * errors[1], errors


def test_calibrated_file_of_4_bit_weights_is_more_accurate(classifier, images, artifacts, tmp_path):
    (plain,) = write_tflite(classifier, tmp_path, ["int4-weights"]).values()
    expected = np.asarray(tf.nn.softmax(classifier(normalize(images, classifier.preprocessing))))
    errors = []
    for path in (artifacts["int4-weights"], plain):
        operations = read_graph(path)
        weights = [one.inputs[1].dtype for one in operations if one.hybrid]
        assert (weights.count("int4"), weights.count("int8")) == (5, 7)  # 8 bits: patches, attention, head
        assert read_delegation(path, operations).not_delegated == ()
        errors.append(1 - logit_cosine(run_tflite(path, images)[0], expected).mean())
    assert errors[0] < 0.7 * errors[1], errors


def test_scales_of_exponentials(artifacts):
    model = unpack_model(artifacts["int8"].read_bytes())
    assert [one.version for one in model.operatorCodes if one.builtinCode == BuiltinOperator.REDUCE_MAX] == [2]
    scales = {}
    for one in read_graph(artifacts["int8"]):
        assert {tensor.dtype for tensor in (*one.inputs, *one.outputs)} <= {"uint8", "int8", "int32"}
        if one.name in ("ELU", "REDUCE_MAX"):
            ends = (model.subgraphs[0].tensors[x.index].quantization for x in (one.inputs[0], one.outputs[0]))
            scales.setdefault(one.name, []).append([(x.scale[0], x.zeroPoint[0]) for x in ends])
    assert (len(scales["ELU"]), len(scales["REDUCE_MAX"])) == (4, 2)
    for before, after in scales["REDUCE_MAX"]:
        assert before == after
    for (scale, zero), after in scales["ELU"]:  # the second of each block is of exponents below 0
        assert -8 < (-128 - zero) * scale < -6.45 and zero == 127
        assert after == (pytest.approx(1 / 255), 127)


def test_inputs_of_gelu_are_clipped(artifacts):
    """GELU(-3.5) = -0.0008."""
    model = unpack_model(artifacts["int8"].read_bytes())
    gelus = [one for one in read_graph(artifacts["int8"]) if one.name == "GELU"]
    ends = [model.subgraphs[0].tensors[one.inputs[0].index].quantization for one in gelus]
    assert len(ends) == 2 and all((-128 - end.zeroPoint[0]) * end.scale[0] >= -3.6 for end in ends)


def test_rounding_of_tokens_is_carried(artifacts):
    """The error has the range of a step of its sum, so that 8 bits divide the step."""
    operations = read_graph(artifacts["int8"])
    tensors = unpack_model(artifacts["int8"].read_bytes()).subgraphs[0].tensors
    producers = {one.outputs[0].index: one for one in operations}

    def scale(tensor):
        return tensors[tensor.index].quantization.scale[0]

    losses = [one for one in operations if "rounding_error" in one.outputs[0].name]
    differences = [producers[one.inputs[0].index] for one in losses]
    assert [one.name for one in differences] == ["SUB"] * 4  # of two blocks; nothing reads the last
    totals = [scale(difference.inputs[1]) for difference in differences]
    powers = np.log2(max(totals) / np.array(totals))
    np.testing.assert_allclose(powers, np.round(powers), atol=1e-4)
    for before, difference in pairwise(differences):  # exact: no finer than both
        assert scale(difference.outputs[0]) == pytest.approx(min(scale(x.inputs[1]) for x in (before, difference)))
    carried = [one for one in operations if "carried_error" in one.outputs[0].name]
    assert [scale(one.outputs[0]) for one in carried] == pytest.approx([total / 127 for total in totals[1:]])
    assert len([one for one in operations if "normalized_error" in one.outputs[0].name]) == 4


def test_rounding_of_patches_cancels(artifacts, classifier, images):
    copy = folded_copy(classifier)
    rotate_tokens(copy)
    fold_pixels(copy)
    kernel = copy.patch_embedding.projection.kernel.numpy().reshape(-1, 32)  # (P P C, D)
    size = copy.patch_embedding.projection.kernel.shape[0]
    patches = tf.image.extract_patches(images, *[[1, size, size, 1]] * 2, [1, 1, 1, 1], "VALID")
    patches = np.reshape(patches, (-1, len(kernel)))
    model = unpack_model(artifacts["int8"].read_bytes())
    (graph,) = model.subgraphs
    weight = graph.tensors[next(one for one in read_graph(artifacts["int8"]) if one.name == "CONV_2D").inputs[1].index]
    scale = np.array(weight.quantization.scale, "float32")
    integers = model.buffers[weight.buffer].data.view("int8").reshape(32, -1).T
    assert np.abs(integers.astype(int)).max() == 127
    errors = [
        np.var(patches @ (rounded * scale - kernel), axis=0).mean()
        for rounded in (integers, np.clip(np.rint(kernel / scale), -127, 127))
    ]
    assert errors[0] < 0.5 * errors[1], errors


def test_float_operations_stay(artifacts, float32, tmp_path):
    use_integer_operations(model := unpack_model(float32))
    (path := tmp_path / "same.tflite").write_bytes(pack_model(model))
    names = [one.name for one in read_graph(artifacts["float32"])]
    assert [one.name for one in read_graph(path)] == names and "REDUCE_MAX" in names


def test_attention_maps_in_integers(classifier, inputs, images, tmp_path):
    """Nothing reads the last block's values, and XNNPACK refuses a SPLIT with parts of several types."""
    (path,) = write_tflite(classifier, tmp_path, ["int8"], images[:20], signatures=["attention"]).values()
    found, _ = run_tflite(path, images, "attention")
    expected = rollout(classifier.attention_maps(inputs[0]), classifier.prefix_tokens)
    assert np.corrcoef(found.ravel(), np.ravel(expected))[0, 1] > 0.99


@pytest.mark.parametrize("name", ["mixed-int8", "int8"])
def test_xnnpack_multiplies_queries_keys_and_values(artifacts, name):
    operations = read_graph(artifacts[name])
    products = [one for one in operations if one.name == "BATCH_MATMUL"]
    integers = [one for one in products if one.dtype == "int8"]
    # mixed-int8: only queries with keys. int8: queries, keys and values, and the variances of five normalizations.
    assert (len(integers), len(products)) == ((2, 4) if name == "mixed-int8" else (9, 9))
    delegation = read_delegation(artifacts[name], operations)
    assert not [one for one in products if one.index in delegation.not_delegated]
    if name == "int8":
        left = {operations[index].name for index in delegation.not_delegated}
        assert left == {"SOFTMAX", "GELU", "QUANTIZE"}  # that of the classes, not those of attention
        assert delegation.num_partitions == 3  # 13 where there are twelve blocks


@pytest.mark.parametrize("name", FORMATS)
def test_compiled_model_equals_the_interpreter(artifacts, images, name):
    expected, _ = run_tflite(artifacts[name], images[:8])
    dtype, found = np.uint8 if name == "int8" else np.float32, []
    with CompiledModel.from_file(str(artifacts[name])) as model:
        (input_buffer,), (output_buffer,) = model.create_input_buffers(0), model.create_output_buffers(0)
        for image in images[:8]:
            input_buffer.write(image[None].astype(dtype))
            model.run_by_index(0, [input_buffer], [output_buffer])
            found.append(output_buffer.read(4, dtype).copy())
    if name == "int8":
        (details,) = Interpreter(model_path=str(artifacts[name])).get_output_details()
        scale, zero_point = details["quantization"]
        found = (np.float32(found) - zero_point) * scale
    np.testing.assert_allclose(found, expected, atol=2e-3)
