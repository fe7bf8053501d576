import keras
import numpy as np

from keras_vit.layers import AttentionPooling, AveragePooling, TokenPooling

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")


def test_token_and_average_pooling():
    np.testing.assert_array_equal(TokenPooling()(X), X[:, 0])
    np.testing.assert_allclose(TokenPooling(2)(X), (X[:, 0] + X[:, 1]) / 2, atol=1e-6)
    np.testing.assert_allclose(AveragePooling()(X), X.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(AveragePooling(prefix_tokens=1)(X), X[:, 1:].mean(axis=1), atol=1e-6)


def test_attention_pooling_equals_attention_and_residual_mlp():
    layer, peer = AttentionPooling(3, 24), keras.layers.MultiHeadAttention(3, 4)
    output = layer(X)
    probe = np.broadcast_to(layer.probe, (2, 1, 12))
    peer(probe, X)
    values = []
    for dense in (layer.query, layer.key, layer.value):
        kernel, bias = dense.get_weights()
        values += [kernel.reshape(12, 3, 4), bias.reshape(3, 4)]
    kernel, bias = layer.out.get_weights()
    peer.set_weights([*values, kernel.reshape(3, 4, 12), bias])
    pooled = np.asarray(peer(probe, X))
    expected = pooled + np.asarray(layer.mlp(layer.norm(pooled)))
    np.testing.assert_allclose(output, expected[:, 0], atol=1e-5)


def test_attention_pooling_is_permutation_invariant():
    layer = AttentionPooling(3, 24)
    np.testing.assert_allclose(layer(X), layer(X[:, ::-1]), atol=1e-5)
