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


def half_by_lines(block, tokens, lines, prefix_tokens):
    """Runs each line (of token numbers) with the prefix tokens by a plain block, and averages these. Also the map."""
    output, attention = np.zeros(tokens.shape), np.zeros((K, len(tokens), len(tokens)))
    for line in lines:
        numbers = [*range(prefix_tokens), *line]
        (after,), (weights,) = (np.asarray(part) for part in block(tokens[None, numbers], return_attention=True))
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
        after_rows, rows = half_by_lines(block.row, image, numbers, prefix_tokens)
        expected, columns = half_by_lines(block.column, after_rows, numbers.T, prefix_tokens)
        np.testing.assert_allclose(output, expected, atol=1e-4)
        np.testing.assert_allclose(attention, columns @ rows.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(np.sum(maps, axis=-1), 1, atol=1e-5)
    np.testing.assert_array_equal(block(tokens), outputs)
