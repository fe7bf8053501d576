"""Every public layer: config round trip, mixed precision, and a gradient for every weight."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import layers

TOKENS, MAP = (2, 5, 12), (2, 4, 4, 32)
SIZE = {"num_heads": 3, "mlp_dim": 24}
NOISE = {"dropout": 0.1, "attention_dropout": 0.1, "stochastic_depth": 0.2}
BLOCK = {"layer_scale": 0.1, "qk_norm": True, "relative_positions": True}
CASES = {
    "AttentionPooling": (lambda **k: layers.AttentionPooling(3, 24, gelu="erf", epsilon=1e-5, **k), TOKENS),
    "AveragePooling": (lambda **k: layers.AveragePooling(prefix_tokens=1, **k), TOKENS),
    "AxialAttention": (lambda **k: layers.AxialAttention("height", 4, 1e-3, **k), MAP),
    "AxialBlock": (lambda **k: layers.AxialBlock((2, 2), 1, **SIZE, seed=1, **BLOCK, **k), TOKENS),
    "ClassToken": (lambda **k: layers.ClassToken(**k), TOKENS),
    "Encoder": (lambda **k: layers.Encoder(2, **SIZE, **NOISE, gelu="erf", epsilon=1e-5, seed=1, **k), TOKENS),
    "Encoder, axial": (lambda **k: layers.Encoder(1, **SIZE, axial_grid=(2, 2), prefix_tokens=1, **k), TOKENS),
    "Encoder, options": (
        lambda **k: layers.Encoder(2, **SIZE, final_norm=False, initial_norm=True, **BLOCK, **k),
        TOKENS,
    ),
    "EncoderBlock": (lambda **k: layers.EncoderBlock(**SIZE, **NOISE, gelu="erf", epsilon=1e-5, seed=1, **k), TOKENS),
    "EncoderBlock, options": (lambda **k: layers.EncoderBlock(**SIZE, **BLOCK, swiglu=True, **k), TOKENS),
    "ExtractPatches": (lambda **k: layers.ExtractPatches((4, 2), **k), (2, 8, 8, 3)),
    "LayerNorm": (lambda **k: layers.LayerNorm(1e-5, **k), TOKENS),
    "LayerScale": (lambda **k: layers.LayerScale(0.1, **k), TOKENS),
    "LearnedTokens": (lambda **k: layers.LearnedTokens(3, **k), TOKENS),
    "Mlp": (lambda **k: layers.Mlp(24, 0.1, "erf", seed=1, **k), TOKENS),
    "Mlp, gated": (lambda **k: layers.Mlp(24, gelu="quick", swiglu=True, **k), TOKENS),
    "PatchDropout": (lambda **k: layers.PatchDropout(0.5, prefix_tokens=1, seed=1, **k), TOKENS),
    "PatchEmbedding": (lambda **k: layers.PatchEmbedding(6, (4, 2), **k), (2, 8, 8, 3)),
    "PositionEmbedding": (lambda **k: layers.PositionEmbedding((2, 2), prefix_tokens=1, **k), TOKENS),
    "PositionEmbedding2D": (lambda **k: layers.PositionEmbedding2D((2, 2), prefix_tokens=1, **k), TOKENS),
    "RelativePositions": (lambda **k: layers.RelativePositions(**k), (2, 3, 5, 4)),
    "ResNetBackbone": (lambda **k: layers.ResNetBackbone((1, 1), 0.5, **k), (2, 8, 12, 3)),
    "ResNetBackbone, paper": (lambda **k: layers.ResNetBackbone((1,), 0.5, "paper", "edge", **k), (2, 8, 12, 3)),
    "SelfAttention": (lambda **k: layers.SelfAttention(3, 0.1, seed=1, **k), TOKENS),
    "SelfAttention, options": (lambda **k: layers.SelfAttention(3, 0.1, True, True, 1e-5, **k), TOKENS),
    "SinCosPositions": (lambda **k: layers.SinCosPositions((2, 2), prefix_tokens=1, **k), TOKENS),
    "SmallImageResNet": (lambda **k: layers.SmallImageResNet((1, 1), **k), (2, 8, 12, 3)),
    "StandardizedConv2D": (
        lambda **k: layers.StandardizedConv2D(6, 3, 1e-10, "variance", strides=2, use_bias=True, **k),
        MAP,
    ),
    "StochasticDepth": (lambda **k: layers.StochasticDepth(0.2, seed=1, **k), TOKENS),
    "TokenAndAveragePooling": (lambda **k: layers.TokenAndAveragePooling(prefix_tokens=2, **k), TOKENS),
    "TokenPooling": (lambda **k: layers.TokenPooling(2, **k), TOKENS),
}


def test_every_layer_is_tested():
    classes = {name: thing for name, thing in vars(layers).items() if inspect.isclass(thing)}
    public = {name for name, thing in classes.items() if issubclass(thing, keras.layers.Layer)}
    assert public == {name.partition(",")[0] for name in CASES}


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
        output = layer(x, training=True) if name.startswith(("Mlp", "Encoder", "AxialBlock")) else layer(x)
        loss = tf.reduce_sum(tf.cast(output, "float32") ** 2)
    assert output.shape == layer.compute_output_shape(shape)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    for weight, gradient in zip(layer.trainable_weights, tape.gradient(loss, layer.trainable_weights)):
        assert weight.dtype == "float32"
        assert gradient is not None and np.isfinite(gradient).all(), weight.path


@pytest.mark.slow
@pytest.mark.parametrize("part", ["attention_maps", "features"])
def test_functional_models_of_parts_are_saved(part, trained_toy, images, tmp_path):
    """Keras saves each layer with the dtype policy of the model that it belongs to."""
    toy = trained_toy(position_embedding="relative", register_tokens=2)
    inputs = keras.Input((16, 16, 3))
    model = keras.Model(inputs, getattr(toy, part)(inputs))
    model.save(tmp_path / "part.keras")
    np.testing.assert_allclose(keras.saving.load_model(tmp_path / "part.keras")(images), model(images), atol=1e-6)
