import keras
import numpy as np
import pytest

from keras_vit.layers import SelfAttention
from keras_vit.layers.attention import attention_weights

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")


def test_equals_keras_multi_head_attention():
    layer, peer = SelfAttention(3), keras.layers.MultiHeadAttention(3, 4)
    layer(TOKENS)
    peer(TOKENS, TOKENS)
    kernel, bias = layer.qkv.get_weights()
    kernel, bias = kernel + 0.1, bias + 0.2
    layer.qkv.set_weights([kernel, bias])
    out_kernel, out_bias = layer.out.get_weights()
    values = []
    for part in (slice(0, 12), slice(12, 24), slice(24, 36)):  # query, key, value
        values += [kernel[:, part].reshape(12, 3, 4), bias[part].reshape(3, 4)]
    peer.set_weights([*values, out_kernel.reshape(3, 4, 12), out_bias])
    expected, scores = peer(TOKENS, TOKENS, return_attention_scores=True)
    output, weights = layer(TOKENS, return_attention=True)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(weights, scores, atol=1e-6)


def test_weights_are_distributions():
    _, weights = SelfAttention(3)(TOKENS, return_attention=True)
    assert weights.shape == (2, 3, 5, 5)
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-6)


def test_fused_kernel_has_the_bounds_of_three_xavier_kernels():
    layer = SelfAttention(4)
    layer.build((None, 5, 64))
    kernel = layer.qkv.get_weights()[0]
    limit = (6 / (64 + 64)) ** 0.5
    assert 0.98 * limit < np.abs(kernel).max() <= limit
    assert not layer.qkv.get_weights()[1].any()


def test_softmax_is_float32_under_mixed_precision():
    # 2,000 keys with nearly equal logits: summed in bfloat16, their exponentials would stop growing at 256.
    query, key = np.zeros((1, 1, 1, 4), "float32"), np.zeros((1, 1, 2000, 4), "float32")
    weights = attention_weights(keras.ops.cast(query, "bfloat16"), keras.ops.cast(key, "bfloat16"))
    assert keras.backend.standardize_dtype(weights.dtype) == "bfloat16"
    np.testing.assert_allclose(np.asarray(weights, "float32"), 1 / 2000, rtol=0.01)


def test_qk_norm_bounds_the_logits():
    layer, large = SelfAttention(3, qk_norm=True), 1000 * TOKENS
    _, weights = layer(large, return_attention=True)
    # |q| = |k| = sqrt(d) after normalization, so no logit is beyond sqrt(d) = 2 and no two differ by more than 4.
    weights = np.asarray(weights)
    assert (weights.max(axis=-1) <= weights.min(axis=-1) * np.exp(4.001)).all()
    _, plain = SelfAttention(3)(large, return_attention=True)
    assert np.asarray(plain).max() > 0.999


def test_qk_norm_normalizes_each_head():
    layer = SelfAttention(3, qk_norm=True, epsilon=0.1)
    layer(TOKENS)
    assert layer.query_norm.gamma.shape == (4,) and layer.query_norm.epsilon == layer.key_norm.epsilon == 0.1
    layer.query_norm.set_weights([np.arange(1.0, 5.0), np.arange(4.0)])
    layer.key_norm.set_weights([np.arange(5.0, 1.0, -1.0), -np.arange(4.0)])
    kernel, bias = layer.qkv.get_weights()
    query, key, _ = np.split((TOKENS @ kernel + bias).reshape(2, 5, 9, 4).transpose(0, 2, 1, 3), 3, axis=1)
    query, key = (
        (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.1) * gamma + beta
        for x, gamma, beta in ((query, np.arange(1, 5), np.arange(4)), (key, np.arange(5, 1, -1), -np.arange(4)))
    )
    logits = query @ key.transpose(0, 1, 3, 2) / 2
    expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(layer(TOKENS, return_attention=True)[1], expected, atol=1e-5)


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match="num_heads=5, width=12. .*1, 2, 3, 4, 6, 12"):
        SelfAttention(5).build((None, 4, 12))
