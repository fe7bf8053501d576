import keras
import numpy as np
import pytest

from keras_vit.layers import AxialBlock, Encoder, EncoderBlock, LayerScale, SelfAttention
from keras_vit.layers.tokens import take_tokens

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")
SIZE = {"num_heads": 3, "mlp_dim": 24}


def test_return_attention_does_not_change_the_output():
    block = EncoderBlock(**SIZE)
    output, weights = block(X, return_attention=True)
    np.testing.assert_array_equal(output, block(X))
    np.testing.assert_array_equal(weights, block.attention(block.norm_attention(X), return_attention=True)[1])
    read = np.array([[2, 0]] * len(X))
    some, their_weights = block(X, return_attention=True, read=read)
    np.testing.assert_allclose(some, take_tokens(output, read), atol=1e-6)
    np.testing.assert_allclose(their_weights, np.asarray(weights)[:, :, [2, 0]], atol=1e-6)


LAYERS = {
    "attention": lambda: SelfAttention(3),
    "block": lambda: EncoderBlock(**SIZE),
    "axial block": lambda: AxialBlock((2, 2), 1, **SIZE),
    "encoder": lambda: Encoder(2, **SIZE),
}


@pytest.mark.parametrize("name", LAYERS)
def test_return_attention_in_functional_models(name):
    layer, inputs = LAYERS[name](), keras.Input((5, 12))
    output, weights = layer(inputs, return_attention=True)
    found = keras.Model(inputs, [output, weights])(X)
    for symbol, real, expected in zip((output, weights), found, layer(X, return_attention=True)):
        assert symbol.shape == (None, *expected.shape[1:])
        np.testing.assert_allclose(real, expected, atol=1e-6)
    assert found[1].shape[-3:] == (3, 5, 5)
    np.testing.assert_allclose(np.sum(found[1], axis=-1), 1, atol=1e-5)


def test_layer_scale():
    layer = LayerScale(0.1)
    np.testing.assert_allclose(layer(X), 0.1 * X, rtol=1e-6)
    layer.gamma.assign(np.arange(12.0))
    np.testing.assert_allclose(layer(X), X * np.arange(12.0, dtype="float32"), rtol=1e-6)
    np.testing.assert_array_equal(EncoderBlock(**SIZE, layer_scale=0.0)(X), X)
    output = LayerScale(1e-6, dtype="mixed_bfloat16")(np.ones((1, 2, 4), "float32"))
    np.testing.assert_allclose(np.asarray(output, "float32"), 1e-6, rtol=0.01)
