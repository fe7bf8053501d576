from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers import PositionEmbedding, resample_grid

GOLDEN = Path(__file__).parents[1] / "data" / "vit_jax_posembed_resize.npz"


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


def test_bicubic_equals_pytorch():
    # Row by row: torch.nn.functional.interpolate(x, size=(3, 5), mode="bicubic", align_corners=False) of PyTorch 2.13.
    table = np.array([[[1.0], [2.0], [4.0], [8.0], [16.0], [32.0]]])
    resized = resample_grid(table, (2, 3), (3, 5), "bicubic")
    expected = [
        [0.354695, 0.488097, 0.784722, 1.293222, 1.644778],
        [4.068001, 5.598003, 9.0, 14.832, 18.864],
        [7.781307, 10.707908, 17.215277, 28.370777, 36.083221],
    ]
    np.testing.assert_allclose(resized.reshape(3, 5), expected, atol=1e-5)


# torch.nn.functional.interpolate(x, size, mode="bicubic", antialias=True, align_corners=False) of PyTorch 2.15.
ANTIALIASED = [
    (
        [[0, 1, 4], [2, -1, 3]],
        [
            [-0.226911, 0.180086, 1.131579, 3.093185, 4.287238],
            [1.075472, 0.492537, 0.0, 2.227612, 3.76415],
            [2.377855, 0.804988, -1.131579, 1.362039, 3.241062],
        ],
    ),
    (
        [[0, 1, 4, 2], [2, -1, 3, 0], [5, 1, 0, 2]],
        [[0.287474, 2.07231, 2.053369], [3.04357, 0.473228, 1.213116]],
    ),
]


@pytest.mark.parametrize("given,expected", ANTIALIASED, ids=["larger", "smaller"])
def test_bicubic_antialias_equals_pytorch(given, expected):
    given, expected = np.array(given, "float32"), np.array(expected, "float32")
    resized = resample_grid(given.reshape(1, -1, 1), given.shape, expected.shape, "bicubic_antialias")
    np.testing.assert_allclose(resized.reshape(expected.shape), expected, atol=1e-5)


def test_corners_on_a_non_square_grid():
    table = np.array([[[0.0], [10.0], [20.0], [30.0]]])
    resized = resample_grid(table, (2, 2), (3, 2))
    np.testing.assert_allclose(resized.reshape(3, 2), [[0, 10], [10, 20], [20, 30]])


@pytest.mark.parametrize("resample", ["corners", "half_pixel", "bicubic", "bicubic_offset", "bicubic_antialias"])
def test_prefix_rows_and_constants_are_unchanged(resample):
    table = np.full((1, 2 + 6, 3), 0.25, "float32")
    table[0, :2] = [[1, 2, 3], [4, 5, 6]]
    resized = resample_grid(table, (2, 3), (5, 4), resample, prefix_tokens=2)
    np.testing.assert_array_equal(resized[0, :2], table[0, :2])
    np.testing.assert_allclose(resized[0, 2:], 0.25, atol=1e-6)


def test_grids_with_equal_numbers_of_patches_are_resampled():
    table = np.arange(16.0).reshape(1, 16, 1)
    assert not np.array_equal(resample_grid(table, (2, 8), (4, 4)), table)
    np.testing.assert_array_equal(resample_grid(table, (2, 8), (2, 8)), table)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="bicubic, bicubic_offset, bicubic_antialias. Received: 'nearest'"):
        resample_grid(np.zeros((1, 4, 2)), (2, 2), (3, 3), "nearest")
    with pytest.raises(ValueError, match=r"\(2, 3\) patches and 1 prefix tokens has 7 rows. Received: 4 rows"):
        resample_grid(np.zeros((1, 4, 2)), (2, 3), (3, 3), prefix_tokens=1)


def test_positions_are_added_to_every_example():
    layer = PositionEmbedding((2, 2))
    tokens = np.zeros((3, 4, 8), "float32")
    output = np.asarray(layer(tokens))
    np.testing.assert_array_equal(output, np.broadcast_to(layer.table, (3, 4, 8)))
    assert 0.01 < np.std(output) < 0.03
