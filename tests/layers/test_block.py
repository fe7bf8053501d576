import numpy as np
import pytest

from keras_vit.layers import EncoderBlock

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")


def test_equals_the_papers_equations():
    block = EncoderBlock(num_heads=3, mlp_dim=24)
    output = block(X)
    after_attention = X + np.asarray(block.attention(block.norm_attention(X)))
    expected = after_attention + np.asarray(block.mlp(block.norm_mlp(after_attention)))
    np.testing.assert_allclose(output, expected, atol=1e-6)


def test_return_attention_does_not_change_the_output():
    block = EncoderBlock(num_heads=3, mlp_dim=24)
    output, weights = block(X, return_attention=True)
    np.testing.assert_array_equal(output, block(X))
    np.testing.assert_array_equal(weights, block.attention(block.norm_attention(X), return_attention=True)[1])
    read = np.array([[2, 0]] * len(X))
    some, their_weights = block(X, return_attention=True, read=read)
    np.testing.assert_allclose(some, np.take_along_axis(np.asarray(output), read[..., None], 1), atol=1e-6)
    np.testing.assert_allclose(their_weights, np.asarray(weights)[:, :, [2, 0]], atol=1e-6)


@pytest.mark.parametrize("options,message", [({"gelu": "relu"}, "`gelu`"), ({"stochastic_depth": 1.0}, "`rate`")])
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        EncoderBlock(num_heads=3, mlp_dim=24, **options)
