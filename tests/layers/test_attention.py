import keras
import numpy as np
import pytest
from randomize import randomize

from keras_vit.layers import SelfAttention
from keras_vit.layers.attention import attention_weights

B, K, N, D = 2, 3, 5, 12
TOKENS = np.random.default_rng(0).standard_normal((B, N, D)).astype("float32")


def test_fused_kernel_has_the_bounds_of_three_xavier_kernels():
    layer = SelfAttention(4)
    layer.build((None, 5, 64))
    kernel, bias = layer.qkv.get_weights()
    limit = (6 / (64 + 64)) ** 0.5
    assert 0.98 * limit < np.abs(kernel).max() <= limit and not bias.any()


def test_softmax_is_float32_under_mixed_precision():
    # 2,000 keys with nearly equal logits: summed in bfloat16, their exponentials would stop growing at 256.
    query, key = np.zeros((1, 1, 1, 4), "float32"), np.zeros((1, 1, 2000, 4), "float32")
    weights = attention_weights(keras.ops.cast(query, "bfloat16"), keras.ops.cast(key, "bfloat16"))
    assert weights.dtype == "bfloat16"
    np.testing.assert_allclose(np.asarray(weights, "float32"), 1 / 2000, rtol=0.01)


def test_qk_norm_bounds_the_logits():
    weights, plain = (SelfAttention(3, qk_norm=norm)(1000 * TOKENS, return_attention=True)[1] for norm in (True, False))
    # |q| = |k| = sqrt(d) after normalization, so no logit is beyond sqrt(d) = 2 and no two differ by more than 4.
    assert (np.max(weights, axis=-1) <= np.min(weights, axis=-1) * np.exp(4.001)).all()
    assert np.max(plain) > 0.999


@pytest.mark.parametrize("qk_norm,relative", [(False, False), (True, False), (False, True), (True, True)])
def test_equals_the_equations(qk_norm, relative):
    """The paper's equations 6 and 7, one query and one key at a time, with the logits of appendix D.4 added."""
    layer = SelfAttention(K, qk_norm=qk_norm, relative_positions=relative, epsilon=0.1)
    layer(TOKENS)
    assert not relative or 0.01 < np.std(layer.relative.table) < 0.03
    randomize(layer, 0.3, seed=2)
    output, attention = layer(TOKENS, return_attention=True)
    kernel, bias = layer.qkv.get_weights()
    qkv = (TOKENS.astype("float64") @ kernel + bias).reshape(B, N, 3, K, D // K)
    if qk_norm:
        for part, norm in enumerate((layer.query_norm, layer.key_norm)):
            x, (gamma, beta) = qkv[:, :, part], norm.get_weights()
            variance = x.var(-1, keepdims=True) + 0.1
            qkv[:, :, part] = (x - x.mean(-1, keepdims=True)) / np.sqrt(variance) * gamma + beta
    table = np.asarray(layer.relative.table) if relative else np.zeros((2 * N - 1, D // K))
    mixed = np.zeros((B, N, D))
    for b, k, n in np.ndindex(B, K, N):
        keys = np.stack([qkv[b, m, 1, k] + table[n - m + N - 1] for m in range(N)])
        weights = np.exp(keys @ qkv[b, n, 0, k] / np.sqrt(D / K))
        weights /= weights.sum()
        np.testing.assert_allclose(attention[b, k, n], weights, atol=1e-5)
        mixed[b, n, k * D // K : (k + 1) * D // K] = weights @ qkv[b, :, 2, k]
    kernel, bias = layer.out.get_weights()
    np.testing.assert_allclose(output, mixed @ kernel + bias, atol=1e-4)
