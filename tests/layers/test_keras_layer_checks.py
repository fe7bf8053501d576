"""Keras's own checks of every public layer: serialization, symbolic and eager shapes, a training step, precision."""

import gc
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.testing import TestCase

from keras_vit import layers
from keras_vit.keras_internals import all_layers
from keras_vit.layers.composite import Composite

TOKENS, MAP, IMAGES = (2, 5, 12), (2, 4, 4, 32), (2, 8, 12, 3)
SIZE = {"num_heads": 3, "mlp_dim": 24}
NOISE = {"dropout": 0.1, "attention_dropout": 0.1, "stochastic_depth": 0.2, "seed": 1, "epsilon": 1e-5}
LOGITS = {"qk_norm": True, "relative_positions": True}
OPTIONS = {"layer_scale": 0.1, **LOGITS}
GRID = {"grid": (2, 2), "prefix_tokens": 1}
PAPER = {"form": "paper", "pool_padding": "edge"}
CONV = {"epsilon": 1e-10, "epsilon_on": "variance", "strides": 2, "use_bias": True}
# Layer, arguments, input shape, expected output shape.
ROWS = [
    (layers.AttentionPooling, {**SIZE, "gelu": "erf", "epsilon": 1e-5}, TOKENS, (2, 12)),
    (layers.AveragePooling, {"prefix_tokens": 1}, TOKENS, (2, 12)),
    (layers.AxialAttention, {"axis": "height", "num_heads": 4, "epsilon": 1e-3}, MAP, MAP),
    (layers.AxialBlock, {**GRID, **SIZE, **OPTIONS, "seed": 1}, TOKENS, TOKENS),
    (layers.ClassToken, {}, TOKENS, (2, 6, 12)),
    (layers.Encoder, {"depth": 2, **SIZE, **NOISE, "gelu": "erf"}, TOKENS, TOKENS),
    (layers.Encoder, {"depth": 1, **SIZE, "axial_grid": (2, 2), "prefix_tokens": 1}, TOKENS, TOKENS),
    (layers.Encoder, {"depth": 1, **SIZE, **OPTIONS, "final_norm": False, "initial_norm": True}, TOKENS, TOKENS),
    (layers.EncoderBlock, {**SIZE, **NOISE, "gelu": "erf"}, TOKENS, TOKENS),
    (layers.EncoderBlock, {**SIZE, **OPTIONS, "swiglu": True}, TOKENS, TOKENS),
    (layers.ExtractPatches, {"patch_size": (4, 2)}, IMAGES, (2, 12, 24)),
    (layers.LayerNorm, {"epsilon": 1e-5}, TOKENS, TOKENS),
    (layers.LayerScale, {"initial": 0.1}, TOKENS, TOKENS),
    (layers.LearnedTokens, {"count": 3}, TOKENS, (2, 8, 12)),
    (layers.Mlp, {"mlp_dim": 24, "dropout": 0.1, "gelu": "erf", "seed": 1}, TOKENS, TOKENS),
    (layers.Mlp, {"mlp_dim": 24, "gelu": "quick", "swiglu": True}, TOKENS, TOKENS),
    (layers.PatchDropout, {"rate": 0.5, "prefix_tokens": 1, "seed": 1}, TOKENS, TOKENS),
    (layers.PatchEmbedding, {"width": 6, "patch_size": (4, 2)}, IMAGES, (2, 12, 6)),
    (layers.PositionEmbedding, GRID, TOKENS, TOKENS),
    (layers.PositionEmbedding2D, GRID, TOKENS, TOKENS),
    (layers.RelativePositions, {}, (2, 3, 5, 4), (2, 3, 5, 5)),
    (layers.ResNetBackbone, {"stages": (1,), "width_factor": 0.5}, IMAGES, (2, 2, 3, 128)),
    (layers.ResNetBackbone, {"stages": (1,), "width_factor": 0.5, **PAPER}, IMAGES, (2, 2, 3, 128)),
    (layers.RotaryPositions, {"grid": (2, 2), "prefix_tokens": 1}, (2, 3, 5, 4), (2, 3, 5, 4)),
    (layers.SelfAttention, {"num_heads": 3, "dropout": 0.1, "seed": 1}, TOKENS, TOKENS),
    (layers.SelfAttention, {"num_heads": 3, **LOGITS, "epsilon": 1e-5}, TOKENS, TOKENS),
    (layers.SinCosPositions, GRID, TOKENS, TOKENS),
    (layers.SmallImageResNet, {"stages": (1,)}, IMAGES, (2, 4, 6, 128)),
    (layers.StandardizedConv2D, {"filters": 6, "kernel_size": 3, **CONV}, MAP, (2, 1, 1, 6)),
    (layers.StochasticDepth, {"rate": 0.2, "seed": 1}, TOKENS, TOKENS),
    (layers.TokenAndAveragePooling, {"prefix_tokens": 2}, TOKENS, (2, 24)),
    (layers.TokenPooling, {"count": 2}, TOKENS, (2, 12)),
]
IDS = [f"{kind.__name__}-{number}" for number, (kind, *_) in enumerate(ROWS)]


def test_every_public_layer_has_a_row():
    public = {kind for kind in vars(layers).values() if inspect.isclass(kind) and issubclass(kind, keras.Layer)}
    assert public == {kind for kind, *_ in ROWS}


@pytest.mark.slow
@pytest.mark.parametrize("kind,arguments,shape,expected", ROWS, ids=IDS)
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed", "ignore:The model does not have any trainable")
def test_checks_of_keras(kind, arguments, shape, expected):
    masks = True if kind is layers.LayerNorm else None
    TestCase().run_layer_test(
        kind, arguments, input_shape=shape, expected_output_shape=expected, supports_masking=masks
    )


@pytest.mark.parametrize("kind,arguments,shape,expected", ROWS, ids=IDS)
def test_a_copy_computes_the_same_and_every_weight_has_a_gradient(kind, arguments, shape, expected):
    layer = kind(**arguments, name="mine", dtype="mixed_bfloat16")
    copy = kind.from_config(layer.get_config())
    assert (copy.name, copy.dtype_policy.name) == ("mine", "mixed_bfloat16")
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    with tf.GradientTape() as tape:
        output = layer(x)
        loss = tf.reduce_sum(tf.cast(output, "float32") ** 2)
    assert isinstance(layer, Composite) == (len(all_layers(layer)) > 1)
    assert output.shape == layer.compute_output_shape(shape) == expected and output.dtype == "bfloat16"
    for weight, gradient in zip(layer.trainable_weights, tape.gradient(loss, layer.trainable_weights)):
        assert weight.dtype == "float32" and gradient is not None and np.isfinite(gradient).all(), weight.path
    copy.build(shape)
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(tf.cast(copy(x), "float32"), tf.cast(output, "float32"))


@pytest.mark.parametrize("kind,arguments,shape,expected", [row for row in ROWS if issubclass(row[0], Composite)])
def test_what_is_done_to_the_layers_inside_is_in_the_configuration(kind, arguments, shape, expected, monkeypatch):
    """Each layer inside has the configuration that Keras gives it, which plain layers are saved with."""
    monkeypatch.setattr(gc, "collect", lambda: 0)  # Keras calls it for each quantized layer
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    layer = kind(**arguments, dtype="mixed_bfloat16")
    layer(x)
    leaves = [inner for inner in all_layers(layer) if len(all_layers(inner)) == 1 and inner.weights]
    for inner in leaves:
        if type(inner) is keras.layers.Dense:
            inner.quantize(config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None))
    lora = next(inner for inner in leaves if hasattr(inner, "enable_lora"))
    lora.enable_lora(2, lora_alpha=3)
    lora.lora_kernel_b.assign(np.full(lora.lora_kernel_b.shape, 0.1))
    leaves[-1].trainable = False
    leaves[-1].dtype_policy = "bfloat16" if leaves[-1].quantization_mode is None else "int8_from_bfloat16"
    unbuilt = kind.from_config(layer.get_config())
    copy = kind.from_config(unbuilt.get_config())
    copy.build(shape)
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(*(tf.cast(each(x), "float32") for each in (copy, layer)))
    theirs = [inner for inner in all_layers(copy) if len(all_layers(inner)) == 1 and inner.weights]
    assert [inner.get_config() for inner in theirs] == [inner.get_config() for inner in leaves]
    assert [weight.trainable for weight in copy.weights] == [weight.trainable for weight in layer.weights]
    assert copy.get_config() == layer.get_config()


def test_regularizers_of_layers_inside_are_in_the_configuration():
    layer = layers.Mlp(mlp_dim=24)
    layer.build(TOKENS)
    dense = next(inner for inner in all_layers(layer) if type(inner) is keras.layers.Dense)
    dense.kernel_regularizer = keras.regularizers.L2(0.1)
    copy = layers.Mlp.from_config(layer.get_config())
    copy.build(TOKENS)
    copy.set_weights(layer.get_weights())
    (loss,) = copy.losses
    np.testing.assert_allclose(loss, 0.1 * np.sum(dense.get_weights()[0] ** 2), rtol=1e-6)
