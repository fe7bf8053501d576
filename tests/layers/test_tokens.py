import numpy as np
import pytest

from keras_vit.layers import ClassToken, LearnedTokens


def test_class_token_is_first_and_initially_zero():
    layer = ClassToken()
    tokens = np.random.default_rng(0).standard_normal((3, 4, 6)).astype("float32")
    output = np.asarray(layer(tokens))
    assert output.shape == (3, 5, 6)
    np.testing.assert_array_equal(output[:, 0], 0)
    np.testing.assert_array_equal(output[:, 1:], tokens)


def test_class_token_is_the_same_for_all_examples():
    layer = ClassToken()
    layer.build((None, 4, 6))
    layer.token.assign(np.arange(6.0).reshape(1, 1, 6))
    output = np.asarray(layer(np.zeros((2, 4, 6), "float32")))
    np.testing.assert_array_equal(output[:, 0], [np.arange(6.0)] * 2)


def test_learned_tokens_are_first_and_random():
    layer = LearnedTokens(200)
    tokens = np.random.default_rng(0).standard_normal((3, 4, 6)).astype("float32")
    output = np.asarray(layer(tokens))
    assert output.shape == layer.compute_output_shape(tokens.shape) == (3, 204, 6)
    np.testing.assert_array_equal(output[:, 200:], tokens)
    np.testing.assert_array_equal(output[:, :200], np.repeat(layer.tokens, 3, axis=0))
    assert 0.018 < output[0, :200].std() < 0.022


@pytest.mark.parametrize("count", [0, -1, 1.0, "2"])
def test_count_must_be_a_positive_integer(count):
    with pytest.raises(ValueError, match=f"positive integer of tokens. Received: {count!r}"):
        LearnedTokens(count)
