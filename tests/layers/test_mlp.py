import numpy as np
import pytest

from keras_vit.layers import Mlp

X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32") * 3


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
