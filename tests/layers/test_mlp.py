import keras
import numpy as np
import pytest

from keras_vit.layers import Mlp

X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32") * 3


@pytest.mark.parametrize("gelu", ["tanh", "erf"])
def test_equals_two_dense_layers_and_gelu(gelu):
    layer = Mlp(16, gelu=gelu)
    output = layer(X)
    (k1, b1), (k2, b2) = layer.hidden.get_weights(), layer.out.get_weights()
    hidden = keras.ops.gelu(X @ k1 + b1, approximate=gelu == "tanh")
    np.testing.assert_allclose(output, np.asarray(hidden) @ k2 + b2, atol=1e-5)


def test_quick_gelu_and_swiglu_equal_their_formulas():
    layer = Mlp(16, gelu="quick")
    output = layer(X)
    (k1, b1), (k2, b2) = layer.hidden.get_weights(), layer.out.get_weights()
    hidden = X @ k1 + b1
    np.testing.assert_allclose(output, hidden / (1 + np.exp(-1.702 * hidden)) @ k2 + b2, atol=1e-5)
    layer = Mlp(16, swiglu=True)
    output = layer(X)
    (k1, b1), (k2, b2) = layer.hidden.get_weights(), layer.out.get_weights()
    assert k1.shape == (8, 32) and k2.shape == (16, 8)
    gate, values = np.split(X @ k1 + b1, 2, axis=-1)
    np.testing.assert_allclose(output, gate / (1 + np.exp(-gate)) * values @ k2 + b2, atol=1e-5)


def test_tanh_and_erf_gelu_differ_slightly():
    tanh, erf = Mlp(16), Mlp(16, gelu="erf")
    tanh(X), erf(X)
    erf.set_weights(tanh.get_weights())
    difference = np.abs(np.asarray(tanh(X)) - np.asarray(erf(X))).max()
    assert 1e-6 < difference < 5e-3


def test_initial_biases():
    layer = Mlp(512)
    layer.build((None, 3, 64))
    assert layer.hidden.bias.numpy().std() == pytest.approx(1e-6, rel=0.2)


def test_dropout_after_both_dense_layers():
    layer = Mlp(64, dropout=0.5, seed=3)
    layer(X)
    layer.out.bias.assign(np.ones(8))
    output = np.asarray(layer(np.zeros((50, 4, 8), "float32"), training=True))
    assert 0.4 < (output == 0).mean() < 0.6
    assert not np.array_equal(layer(X, training=True), layer(X, training=True))
    np.testing.assert_array_equal(layer(X), layer(X))


def test_unknown_gelu():
    with pytest.raises(ValueError, match="'tanh', 'erf' or 'quick'. Received: 'relu'"):
        Mlp(4, gelu="relu")
