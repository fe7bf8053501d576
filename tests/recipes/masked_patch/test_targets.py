import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.masked_patch.targets import color_of, output_shape, patch_targets, quantize


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
