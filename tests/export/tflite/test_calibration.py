"""Ranges of activations."""

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.schema_py_generated import BuiltinOperator, TensorType

from keras_vit.export.tflite.calibration import activation_ranges, measure_square_sums
from keras_vit.export.tflite.equalize import folded_copy
from keras_vit.export.tflite.flatbuffer import unpack_model
from keras_vit.export.tflite.layer_norm import watch_norms
from keras_vit.export.tflite.quantize import quantize
from keras_vit.export.tflite.signatures import signature_function

pytestmark = pytest.mark.slow


def test_ranges_cover_all_images(artifacts, images):
    float32 = artifacts["float32"].read_bytes()
    ranges, *single = (activation_ranges(float32, some) for some in (images[:3], *images[:3, None]))
    assert len(ranges) > 50 and all(one.keys() == ranges.keys() for one in single)
    for name, ends in ranges.items():
        assert ends["min"].item() == min(one[name]["min"].item() for one in single)
        assert ends["max"].item() == max(one[name]["max"].item() for one in single)
    assert any(ranges[name]["max"].item() > single[0][name]["max"].item() for name in ranges)
    pixels = next(value for name, value in ranges.items() if "images" in name)
    assert (pixels["min"].item(), pixels["max"].item()) == (0, 255)


def test_square_sums_of_all_normalizations(classifier, images):
    copy = folded_copy(classifier)
    measure_square_sums(copy, "classify", images[:5])
    norms = [norm for block in copy.encoder.blocks for norm in (block.norm_attention, block.norm_mlp)]
    for norm in (*norms, copy.encoder.norm):
        low, high = norm.square_sums
        assert 0 < high / 512 <= low < high
    tokens = copy.add_tokens(copy.embed(images[:5] / 127.5 - 1)).numpy()
    sums = 32 * tokens.var(axis=-1)
    assert norms[0].square_sums == pytest.approx((sums.min() / 2, sums.max()), rel=1e-3)


def test_square_sums_of_both_tokens_of_deit(trained_toy, images):
    """Its last normalization is called once for each token."""
    copy = folded_copy(trained_toy(distillation=True))
    image = tf.constant((127.5 * (images[:1] + 1)).astype("float32"))

    @tf.function
    def last_sums():
        with watch_norms() as seen:
            signature_function(copy, "classify")(image)
        return [of_call for norm, of_call in seen if norm is copy.encoder.norm]

    sums = [np.asarray(of_call).item() for of_call in last_sums()]
    measure_square_sums(copy, "classify", image)
    assert len(sums) == 2 and sums[0] != sums[1]
    assert copy.encoder.norm.square_sums == pytest.approx((min(sums) / 2, max(sums)), rel=1e-3)


def test_input_range_is_0_to_255_for_dark_images_too(artifacts, images):
    float32 = artifacts["float32"].read_bytes()
    content = quantize(float32, "int8", activation_ranges(float32, 0.7 * images[:20]))
    (image,) = Interpreter(model_content=content).get_input_details()
    assert image["quantization"] == (1.0, 0)


@pytest.mark.parametrize("name", ["dynamic-int8", "mixed-int8", "int8", "int16x8"])
def test_weights_have_a_scale_for_each_output_channel(artifacts, name):
    model = unpack_model(artifacts[name].read_bytes())
    (graph,) = model.subgraphs
    codes = [code.builtinCode for code in model.operatorCodes]
    linear = (BuiltinOperator.FULLY_CONNECTED, BuiltinOperator.CONV_2D)
    weights = [graph.tensors[one.inputs[1]] for one in graph.operators if codes[one.opcodeIndex] in linear]
    weights = [weight for weight in weights if tuple(weight.shape[1:3]) != (1, 1)]  # of `piecewise` in int8
    assert len(weights) == 12  # patches, 4 in a block, 5 in the last, the rotation back, the head
    if name in ("dynamic-int8", "mixed-int8"):
        [patches] = [weight for weight in weights if weight.type == TensorType.FLOAT32]
        assert len(patches.shape) == 4
    for weight in (weight for weight in weights if weight.type != TensorType.FLOAT32):
        assert len(weight.quantization.scale) == weight.shape[0] > 1


def test_keep_float(artifacts, images):
    float32 = artifacts["float32"].read_bytes()
    ranges = activation_ranges(float32, images[:20])
    sizes = [len(quantize(float32, "mixed-int8", ranges, keep)) for keep in ((), (".*mlp.*",), (".*",))]
    assert sizes[0] < sizes[1] < sizes[2]
