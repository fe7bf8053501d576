import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.masked_patch.targets import (
    MASK,
    color_of,
    draw_corruption,
    output_shape,
    patch_targets,
    quantize,
)


def test_quantize_to_bins_of_32_levels():
    colors = [[0, 0, 0], [31.9, 32, 255], [255, 0, 0], [0, 64, 96], [256, -1, 128]]
    np.testing.assert_array_equal(quantize(tf.constant(colors, tf.float32)), [0, 15, 448, 19, 452])
    np.testing.assert_array_equal(quantize(tf.cast(color_of(np.arange(512)), tf.float32)), np.arange(512))


@pytest.mark.parametrize("target", ["mean_color", "downsampled_color", "pixels"])
def test_targets_depend_neither_on_the_dtype_policy_nor_on_that_of_the_pixels(target):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), "uint8")
    expected = patch_targets(pixels, 4, target)
    np.testing.assert_array_equal(patch_targets(pixels.astype("float32"), 4, target), expected)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        np.testing.assert_array_equal(patch_targets(pixels.astype("float32"), 4, target), expected)
    finally:
        keras.config.set_dtype_policy("float32")


def test_mean_color_of_a_patch():
    pixels = np.zeros((1, 4, 8, 3), "float32")
    pixels[0, :, :4] = [200, 0, 40]
    pixels[0, :2, 4:] = 255  # half of the second patch: its mean is 127.5
    classes = patch_targets(pixels, 4, "mean_color")
    np.testing.assert_array_equal(classes, [[6 * 64 + 0 + 1, 3 * 64 + 3 * 8 + 3]])


def test_downsampled_colors_are_means_of_cells_row_by_row():
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 8, 16, 3)).astype("float32")
    classes = patch_targets(pixels, 8, "downsampled_color")
    assert classes.shape == (2, 2, 16)
    for column in range(2):
        patch = pixels[1, :, 8 * column : 8 * column + 8]
        cells = patch.reshape(4, 2, 4, 2, 3).mean(axis=(1, 3)).reshape(16, 3)
        np.testing.assert_array_equal(classes[1, column], quantize(tf.constant(cells)))


def test_downsampling_a_patch_not_divisible_by_four():
    pixels = np.full((1, 14, 14, 3), 100.0, "float32")
    np.testing.assert_array_equal(patch_targets(pixels, 14, "downsampled_color"), np.full((1, 1, 16), 3 * 73))


def test_pixels_are_not_normalized():
    pixels = np.random.default_rng(0).uniform(0, 255, (1, 4, 4, 3)).astype("float32")
    targets = patch_targets(pixels, 2, "pixels")
    np.testing.assert_allclose(targets[0, 1], pixels[0, :2, 2:].reshape(-1) / 255, atol=1e-6)


@pytest.mark.parametrize("target,shape", [("mean_color", (512,)), ("downsampled_color", (16, 512)), ("pixels", (96,))])
def test_output_shape(target, shape):
    assert output_shape((4, 8), target) == shape


@pytest.mark.parametrize(
    "patches,fraction,count", [(16, 0.5, 8), (49, 0.5, 24), (196, 0.15, 29), (4, 0.01, 1), (9, 1.0, 9)]
)
def test_corrupted_fraction_is_exact(patches, fraction, count):
    drawn = draw_corruption((0, 0), 32, patches, fraction)
    assert drawn.corrupted.shape == (32, count)
    for row in drawn.corrupted.numpy():
        assert len(set(row)) == count and 0 <= min(row) and max(row) < patches


def test_masked_and_replaced_fractions():
    drawn = draw_corruption((1, 2), 500, 100)
    masked = drawn.source.numpy() == MASK
    moved = (drawn.source.numpy() != np.arange(100)) & ~masked
    corrupted = np.zeros((500, 100), bool)
    np.put_along_axis(corrupted, drawn.corrupted.numpy(), True, axis=1)
    assert not (masked & ~corrupted).any() and not (moved & ~corrupted).any()
    fractions = masked.sum() / corrupted.sum(), moved.sum() / corrupted.sum()
    np.testing.assert_allclose(fractions, (0.8, 0.1), atol=0.01)
    for masked_fraction, expected in ((1.0, np.full(10, MASK)), (0.0, np.arange(10))):
        assert (draw_corruption((0, 0), 4, 10, 1.0, masked_fraction, 0.0).source.numpy() == expected).all()


def test_patches_are_chosen_uniformly():
    drawn = draw_corruption((3, 0), 4000, 8, masked_fraction=0.0, replaced_fraction=1.0)
    counts = np.bincount(drawn.corrupted.numpy().ravel(), minlength=8) / 4000
    np.testing.assert_allclose(counts, 0.5, atol=0.04)
    source = drawn.source.numpy()
    moved = source != np.arange(8)
    assert moved.sum() == 4000 * 4  # a replaced patch never gets its own embedding
    sources_of_first = np.bincount(source[moved[:, 0], 0], minlength=8) / moved[:, 0].sum()
    np.testing.assert_allclose(sources_of_first[1:], 1 / 7, atol=0.03)
