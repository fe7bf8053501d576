"""The tokens that are added before the encoder and read after it."""

import numpy as np
import pytest

from keras_vit.layers import AttentionPooling, AveragePooling, ClassToken, LearnedTokens, TokenPooling

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")


def test_token_and_average_pooling():
    np.testing.assert_array_equal(TokenPooling()(X), X[:, 0])
    np.testing.assert_allclose(TokenPooling(2)(X), (X[:, 0] + X[:, 1]) / 2, atol=1e-6)
    np.testing.assert_allclose(AveragePooling()(X), X.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(AveragePooling(prefix_tokens=1)(X), X[:, 1:].mean(axis=1), atol=1e-6)


def test_attention_pooling_reads_patches_in_any_order():
    """Its numbers are those of goldens, in tests/weights."""
    layer = AttentionPooling(3, 24)
    output = layer(X)
    np.testing.assert_allclose(output, layer(X[:, ::-1]), atol=1e-5)
    of_patches = AttentionPooling(3, 24, prefix_tokens=2)
    of_patches.build(X.shape)
    of_patches.set_weights(layer.get_weights())
    np.testing.assert_allclose(of_patches(X), layer(X[:, 2:]), atol=1e-6)


def test_class_token_is_first_and_initially_zero():
    layer = ClassToken()
    np.testing.assert_array_equal(layer(X), np.pad(X, ((0, 0), (1, 0), (0, 0))))
    layer.token.assign(np.arange(12.0).reshape(1, 1, 12))
    np.testing.assert_array_equal(layer(X)[:, 0], [np.arange(12.0)] * 2)


def test_learned_tokens_are_first_and_random():
    layer = LearnedTokens(200)
    output = np.asarray(layer(X))
    np.testing.assert_array_equal(output[:, 200:], X)
    np.testing.assert_array_equal(output[:, :200], np.repeat(layer.tokens, 2, axis=0))
    assert 0.018 < output[0, :200].std() < 0.022


@pytest.mark.parametrize("count", [0, -1, 1.0, "2"])
def test_count_must_be_a_positive_integer(count):
    with pytest.raises(ValueError, match=f"Received: {count!r}"):
        LearnedTokens(count)
