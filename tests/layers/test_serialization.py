"""Every public layer survives from_config(get_config()) and mixed precision, and every weight of it gets a gradient."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import layers

TOKENS = (2, 5, 12)
CASES = {
    "AttentionPooling": (lambda **k: layers.AttentionPooling(3, 24, gelu="erf", epsilon=1e-5, **k), TOKENS),
    "AveragePooling": (lambda **k: layers.AveragePooling(prefix_tokens=1, **k), TOKENS),
    "ClassToken": (lambda **k: layers.ClassToken(**k), TOKENS),
    "Encoder": (lambda **k: layers.Encoder(2, 3, 24, 0.1, 0.1, 0.2, "erf", 1e-5, seed=1, **k), TOKENS),
    "EncoderBlock": (lambda **k: layers.EncoderBlock(3, 24, 0.1, 0.1, 0.2, "erf", 1e-5, seed=1, **k), TOKENS),
    "ExtractPatches": (lambda **k: layers.ExtractPatches((4, 2), **k), (2, 8, 8, 3)),
    "LayerNorm": (lambda **k: layers.LayerNorm(1e-5, **k), TOKENS),
    "Mlp": (lambda **k: layers.Mlp(24, 0.1, "erf", seed=1, **k), TOKENS),
    "PatchEmbedding": (lambda **k: layers.PatchEmbedding(6, (4, 2), **k), (2, 8, 8, 3)),
    "PositionEmbedding": (lambda **k: layers.PositionEmbedding((2, 2), prefix_tokens=1, **k), TOKENS),
    "SelfAttention": (lambda **k: layers.SelfAttention(3, 0.1, seed=1, **k), TOKENS),
    "StochasticDepth": (lambda **k: layers.StochasticDepth(0.2, seed=1, **k), TOKENS),
    "TokenPooling": (lambda **k: layers.TokenPooling(**k), TOKENS),
}


def test_every_layer_is_tested():
    public = {name for name, thing in vars(layers).items() if inspect.isclass(thing)}
    assert public == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_config_round_trip(name):
    build, shape = CASES[name]
    layer = build(name="mine", dtype="mixed_bfloat16")
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    assert copy.name == "mine"
    assert copy.dtype_policy.name == "mixed_bfloat16"
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    expected = layer(x)
    copy.build(shape)
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(np.asarray(copy(x), "float32"), np.asarray(expected, "float32"))
    serialized = keras.saving.serialize_keras_object(layer)
    assert keras.saving.deserialize_keras_object(serialized).get_config() == layer.get_config()


@pytest.mark.parametrize("name", CASES)
def test_shape_dtype_and_gradients(name):
    build, shape = CASES[name]
    layer = build(dtype="mixed_bfloat16")
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    with tf.GradientTape() as tape:
        output = layer(x, training=True) if name in ("Mlp", "Encoder", "EncoderBlock") else layer(x)
        loss = tf.reduce_sum(tf.cast(output, "float32") ** 2)
    assert output.shape == layer.compute_output_shape(shape)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    for weight, gradient in zip(layer.trainable_weights, tape.gradient(loss, layer.trainable_weights)):
        assert weight.dtype == "float32"
        assert gradient is not None and np.isfinite(gradient).all(), weight.path
