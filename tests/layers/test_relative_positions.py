import numpy as np
import pytest

from keras_vit.layers import RelativePositions, SelfAttention

B, K, N, D = 2, 3, 5, 12
QUERY = np.random.default_rng(0).standard_normal((B, K, N, D // K)).astype("float32")
TOKENS = np.random.default_rng(1).standard_normal((B, N, D)).astype("float32")


def test_logits_equal_the_definition():
    layer = RelativePositions()
    output = np.asarray(layer(QUERY))
    table = np.asarray(layer.table)
    assert table.shape == (2 * N - 1, D // K) and 0.01 < table.std() < 0.03
    assert output.shape == layer.compute_output_shape(QUERY.shape) == (B, K, N, N)
    for n in range(N):
        for m in range(N):
            expected = QUERY[:, :, n] @ table[n - m + N - 1]
            np.testing.assert_allclose(output[:, :, n, m], expected, atol=1e-6)


def test_logits_depend_on_distance_only():
    layer = RelativePositions()
    output = np.asarray(layer(np.ones((1, 1, N, 4), "float32")))[0, 0]
    for distance in range(-N + 1, N):
        diagonal = np.diagonal(output, -distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-6)
    assert len(np.unique(output.round(6))) == 2 * N - 1


@pytest.mark.parametrize("qk_norm", [False, True])
def test_attention_equals_the_paper(qk_norm):
    """The paper's equations 6 and 7, one query and one key at a time, with the logits of appendix D.4 added."""
    layer = SelfAttention(K, relative_positions=True, qk_norm=qk_norm)
    layer(TOKENS)
    random = np.random.default_rng(2)
    for weight in layer.weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    output, attention = layer(TOKENS, return_attention=True)
    kernel, bias = layer.qkv.get_weights()
    qkv = (TOKENS.astype("float64") @ kernel + bias).reshape(B, N, 3, K, D // K)
    norms = (layer.query_norm, layer.key_norm)
    table, mixed = np.asarray(layer.relative.table), np.zeros((B, N, D))
    for b, k, n in np.ndindex(B, K, N):
        logits = []
        for m in range(N):
            query, key = qkv[b, n, 0, k], qkv[b, m, 1, k]
            if qk_norm:
                query, key = (normalized(x, norm) for x, norm in zip((query, key), norms))
            logits.append(query @ (key + table[n - m + N - 1]) / np.sqrt(D / K))
        weights = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(attention[b, k, n], weights, atol=1e-5)
        mixed[b, n, k * D // K : (k + 1) * D // K] = weights @ qkv[b, :, 2, k]
    kernel, bias = layer.out.get_weights()
    np.testing.assert_allclose(output, mixed @ kernel + bias, atol=1e-4)


def normalized(x, norm):
    gamma, beta = norm.get_weights()
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * gamma + beta


def test_zero_table_changes_nothing():
    plain, relative = SelfAttention(K), SelfAttention(K, relative_positions=True)
    plain(TOKENS), relative(TOKENS)
    relative.relative.table.assign(np.zeros((2 * N - 1, D // K)))
    for ours, theirs in ((relative.qkv, plain.qkv), (relative.out, plain.out)):
        ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(relative(TOKENS), plain(TOKENS), atol=1e-6)
    assert relative.count_params() == plain.count_params() + (2 * N - 1) * D // K
