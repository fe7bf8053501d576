import keras
import numpy as np
import pytest

from keras_vit.layers import AxialBlock, Encoder, EncoderBlock, SelfAttention

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")
LAYERS = {
    "attention": lambda: SelfAttention(3),
    "block": lambda: EncoderBlock(num_heads=3, mlp_dim=24),
    "axial block": lambda: AxialBlock((2, 2), 1, num_heads=3, mlp_dim=24),
    "encoder": lambda: Encoder(2, num_heads=3, mlp_dim=24),
}


@pytest.mark.parametrize("name", LAYERS)
def test_return_attention_in_functional_models(name):
    layer, inputs = LAYERS[name](), keras.Input((5, 12))
    output, weights = layer(inputs, return_attention=True)
    found = keras.Model(inputs, [output, weights])(TOKENS)
    for symbol, real, expected in zip((output, weights), found, layer(TOKENS, return_attention=True)):
        assert symbol.shape == (None, *expected.shape[1:])
        np.testing.assert_allclose(real, expected, atol=1e-6)
    assert layer(inputs).shape == (None, 5, 12)
