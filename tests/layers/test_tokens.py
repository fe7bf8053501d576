import numpy as np

from keras_vit.layers import ClassToken


def test_the_token_comes_first_and_starts_at_zero():
    layer = ClassToken()
    tokens = np.random.default_rng(0).standard_normal((3, 4, 6)).astype("float32")
    output = np.asarray(layer(tokens))
    assert output.shape == (3, 5, 6)
    np.testing.assert_array_equal(output[:, 0], 0)
    np.testing.assert_array_equal(output[:, 1:], tokens)


def test_every_example_gets_the_same_learned_token():
    layer = ClassToken()
    layer.build((None, 4, 6))
    layer.token.assign(np.arange(6.0).reshape(1, 1, 6))
    output = np.asarray(layer(np.zeros((2, 4, 6), "float32")))
    np.testing.assert_array_equal(output[:, 0], [np.arange(6.0)] * 2)
