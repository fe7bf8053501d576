import numpy as np
import pytest
from randomize import randomize

from keras_vit.layers.axial import AxialBlock

H, W, D, K = 2, 3, 12, 3
X = np.random.default_rng(0).standard_normal((2, 2 + H * W, D)).astype("float32")


def random_block(prefix_tokens):
    """A block whose weights are all random, and tokens for it."""
    block = AxialBlock((H, W), prefix_tokens, num_heads=K, mlp_dim=24)
    tokens = X[:, 2 - prefix_tokens :]
    block(tokens)
    return randomize(block, 0.3), tokens


def numpy_encoder_block(block, sequence):
    """Equations 2 and 3 of the paper for one sequence (S, D), in float64; and its attention (K, S, S)."""
    x = np.asarray(sequence, "float64")
    qkv = _dense(block.attention.qkv, _norm(block.norm_attention, x))
    heads, outputs = [], []
    for head in range(K):
        query, key, value = (qkv[:, i * D + head * D // K :][:, : D // K] for i in range(3))
        weights = np.exp(query @ key.T / np.sqrt(D / K))
        heads.append(weights / weights.sum(axis=-1, keepdims=True))
        outputs.append(heads[-1] @ value)
    x = x + _dense(block.attention.out, np.concatenate(outputs, axis=-1))
    hidden = _dense(block.mlp.hidden, _norm(block.norm_mlp, x))
    hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
    return x + _dense(block.mlp.out, hidden), np.stack(heads)


def _norm(layer, x):
    gamma, beta = layer.get_weights()
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * gamma + beta


def _dense(layer, x):
    kernel, bias = layer.get_weights()
    return x @ kernel + bias


def numpy_half(block, tokens, lines, prefix_tokens):
    """Runs each line (a list of token numbers) with the prefix tokens; averages these. Also the map (K, N, N)."""
    output, attention = np.zeros(tokens.shape), np.zeros((K, len(tokens), len(tokens)))
    for line in lines:
        numbers = [*range(prefix_tokens), *line]
        after, weights = numpy_encoder_block(block, tokens[numbers])
        for i, n in enumerate(numbers):
            fraction = 1 / len(lines) if n < prefix_tokens else 1
            output[n] += fraction * after[i]
            for j, m in enumerate(numbers):
                attention[:, n, m] += fraction * weights[:, i, j]
    return output, attention


@pytest.mark.parametrize("prefix_tokens", [0, 1, 2])
def test_equals_the_computation_line_by_line(prefix_tokens):
    block, tokens = random_block(prefix_tokens)
    numbers = prefix_tokens + np.arange(H * W).reshape(H, W)
    outputs, maps = block(tokens, return_attention=True)
    assert maps.shape == (2, K, prefix_tokens + H * W, prefix_tokens + H * W)
    for image, output, attention in zip(tokens, np.asarray(outputs), np.asarray(maps)):
        after_rows, rows = numpy_half(block.row, image, numbers, prefix_tokens)
        expected, columns = numpy_half(block.column, after_rows, numbers.T, prefix_tokens)
        np.testing.assert_allclose(output, expected, atol=1e-4)
        np.testing.assert_allclose(attention, columns @ rows.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(np.sum(maps, axis=-1), 1, atol=1e-5)
    np.testing.assert_array_equal(block(tokens), outputs)
