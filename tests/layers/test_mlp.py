import math

import numpy as np
import pytest

from keras_vit.layers import Mlp

X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32") * 3
ACTIVATIONS = {
    "tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "erf": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
    "quick": lambda x: x / (1 + np.exp(-1.702 * x)),
    "swiglu": lambda x: x[..., :16] / (1 + np.exp(-x[..., :16])) * x[..., 16:],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_equals_two_dense_layers_and_the_activation(name):
    layer = Mlp(16, swiglu=True) if name == "swiglu" else Mlp(16, gelu=name)
    output = layer(X)
    (k1, b1), (k2, b2) = layer.hidden.get_weights(), layer.out.get_weights()
    hidden = ACTIVATIONS[name](X.astype("float64") @ k1 + b1)
    np.testing.assert_allclose(output, hidden @ k2 + b2, atol=1e-5)
    assert k1.shape == (8, 32 if name == "swiglu" else 16) and k2.shape == (16, 8)


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
