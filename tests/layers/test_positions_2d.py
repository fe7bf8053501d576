import numpy as np
import pytest

from keras_vit.layers import PositionEmbedding2D, SinCosPositions

H, W, D = 2, 3, 8


def added(layer, prefix_tokens):
    """What the layer adds to each of three examples: (N, D)."""
    tokens = np.random.default_rng(0).standard_normal((3, prefix_tokens + H * W, D)).astype("float32")
    difference = np.asarray(layer(tokens)) - tokens
    np.testing.assert_allclose(difference, np.broadcast_to(difference[:1], difference.shape), atol=1e-6)
    return difference[0]


@pytest.mark.parametrize("prefix_tokens", [0, 2])
def test_learned_positions_concatenate_column_and_row(prefix_tokens):
    layer = PositionEmbedding2D((H, W), prefix_tokens)
    difference = added(layer, prefix_tokens)
    columns, rows = np.asarray(layer.columns), np.asarray(layer.rows)
    assert columns.shape == (W, D // 2) and rows.shape == (H, D // 2)
    for row in range(H):
        for column in range(W):
            expected = [*columns[column], *rows[row]]
            np.testing.assert_allclose(difference[prefix_tokens + row * W + column], expected, atol=1e-6)
    if prefix_tokens:
        np.testing.assert_allclose(difference[:2], layer.prefix, atol=1e-6)
    np.testing.assert_allclose(difference, np.asarray(layer.table)[0], atol=1e-6)
    assert layer.count_params() == (H + W) * D // 2 + prefix_tokens * D
    assert all(0.005 < np.std(weight) < 0.04 for weight in layer.weights)


@pytest.mark.parametrize("prefix_tokens", [0, 2])
def test_sines_and_cosines_equal_big_vision(prefix_tokens):
    layer = SinCosPositions((H, W), prefix_tokens)
    difference = added(layer, prefix_tokens)
    assert not layer.weights and not difference[:prefix_tokens].any()
    for number in range(H * W):
        y, x = divmod(number, W)
        frequencies = [1 / 10_000 ** (i / (D // 4 - 1)) for i in range(D // 4)]
        waves = (f(place * k) for place in (x, y) for f in (np.sin, np.cos) for k in frequencies)
        np.testing.assert_allclose(difference[prefix_tokens + number], list(waves), atol=1e-6)


def test_sines_and_cosines_of_width_4():
    layer = SinCosPositions((1, 2))
    layer.build((None, 2, 4))
    expected = [[0, 1, 0, 1], [np.sin(1), np.cos(1), 0, 1]]
    np.testing.assert_allclose(layer.table[0], expected, atol=1e-6)


@pytest.mark.parametrize(
    "layer,shape,message",
    [
        (PositionEmbedding2D, (None, 7, 9), "multiple of 2. Received: width=9. Use 10"),
        (SinCosPositions, (None, 7, 10), "multiple of 4. Received: width=10. Use 12"),
    ],
)
def test_unsupported_widths(layer, shape, message):
    with pytest.raises(ValueError, match=message):
        layer((H, W), prefix_tokens=1).build(shape)
