from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers import AxialBlock, PositionEmbedding, PositionEmbedding2D, SinCosPositions, resample_grid

GOLDEN = Path(__file__).parents[1] / "data" / "vit_jax_posembed_resize.npz"
H, W, D = 2, 3, 8


@pytest.mark.parametrize("side", [3, 4, 6, 7])
def test_corners_equals_the_papers_code(side):
    golden = np.load(GOLDEN)
    resized = resample_grid(golden["source"], (4, 4), (side, side), prefix_tokens=1)
    np.testing.assert_allclose(resized, golden[f"to_{side}"], atol=1e-6)


@pytest.mark.parametrize("source,target", [((3, 5), (6, 4)), ((2, 8), (4, 4)), ((4, 4), (2, 8)), ((5, 3), (1, 9))])
def test_half_pixel_equals_tensorflow(source, target):
    table = np.random.default_rng(0).standard_normal((1, source[0] * source[1], 6)).astype("float32")
    expected = tf.image.resize(table.reshape(1, *source, 6), target).numpy().reshape(1, -1, 6)
    np.testing.assert_allclose(resample_grid(table, source, target, "half_pixel"), expected, atol=1e-6)


def test_corners_on_other_grids():
    resized = resample_grid(np.array([[[0.0], [10.0], [20.0], [30.0]]]), (2, 2), (3, 2))
    np.testing.assert_allclose(resized.reshape(3, 2), [[0, 10], [10, 20], [20, 30]])
    table = np.arange(16.0).reshape(1, 16, 1)
    assert not np.array_equal(resample_grid(table, (2, 8), (4, 4)), table)
    np.testing.assert_array_equal(resample_grid(table, (2, 8), (2, 8)), table)


@pytest.mark.parametrize("resample", ["corners", "half_pixel", "bicubic", "bicubic_offset", "bicubic_antialias"])
def test_prefix_rows_and_constants_are_unchanged(resample):
    table = np.full((1, 2 + 6, 3), 0.25, "float32")
    table[0, :2] = [[1, 2, 3], [4, 5, 6]]
    resized = resample_grid(table, (2, 3), (5, 4), resample, prefix_tokens=2)
    np.testing.assert_array_equal(resized[0, :2], table[0, :2])
    np.testing.assert_allclose(resized[0, 2:], 0.25, atol=1e-6)


def added(layer, prefix_tokens):
    """What the layer adds to each of three examples: (N, D)."""
    tokens = np.random.default_rng(0).standard_normal((3, prefix_tokens + H * W, D)).astype("float32")
    difference = np.asarray(layer(tokens)) - tokens
    np.testing.assert_allclose(difference, np.broadcast_to(difference[:1], difference.shape), atol=1e-6)
    return difference[0]


@pytest.mark.parametrize("prefix_tokens", [0, 2])
def test_learned_positions(prefix_tokens):
    layer = PositionEmbedding((H, W), prefix_tokens)
    np.testing.assert_allclose(added(layer, prefix_tokens), layer.table[0], atol=1e-6)
    assert 0.01 < np.std(layer.table) < 0.03
    layer = PositionEmbedding2D((H, W), prefix_tokens)
    difference = added(layer, prefix_tokens)
    np.testing.assert_allclose(difference, layer.table[0], atol=1e-6)
    for row, column in np.ndindex(H, W):
        expected = [*np.asarray(layer.columns)[column], *np.asarray(layer.rows)[row]]
        np.testing.assert_allclose(difference[prefix_tokens + row * W + column], expected, atol=1e-6)
    if prefix_tokens:
        np.testing.assert_allclose(difference[:2], layer.prefix, atol=1e-6)
    assert layer.count_params() == (H + W) * D // 2 + prefix_tokens * D
    assert all(0.005 < np.std(weight) < 0.04 for weight in layer.weights)


GRID_LAYERS = {
    "axial": lambda grid: AxialBlock(grid, 1, num_heads=2, mlp_dim=8),
    "learned_1d": lambda grid: PositionEmbedding(grid, 1),
    "learned_2d": lambda grid: PositionEmbedding2D(grid, 1),
    "sincos_2d": lambda grid: SinCosPositions(grid, 1),
}


@pytest.mark.parametrize("name", GRID_LAYERS)
def test_wrong_grids_and_numbers_of_tokens(name):
    for grid in (14, (2, 0), (2, 3, 4), (2.0, 3)):
        with pytest.raises(ValueError, match="`grid`"):
            GRID_LAYERS[name](grid)
    with pytest.raises(ValueError, match="make 7 tokens.*has 6 tokens"):
        GRID_LAYERS[name]((2, 3)).build((None, 6, 8))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="Received: 'nearest'"):
        resample_grid(np.zeros((1, 4, 2)), (2, 2), (3, 3), "nearest")
    with pytest.raises(ValueError, match="7 rows. Received: 4"):
        resample_grid(np.zeros((1, 4, 2)), (2, 3), (3, 3), prefix_tokens=1)
