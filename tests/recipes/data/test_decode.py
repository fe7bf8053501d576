"""Decoding of image files against Pillow."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scenes import encoded

from keras_vit.images.decoding import decode
from keras_vit.recipes.data.windows import decode_window


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP"])
def test_windows_decode_as_in_pillow(color_blocks, kind):
    """Of files of one mode each; all others: tests/images/test_decoders.py."""
    file = encoded(color_blocks, kind, **{"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}.get(kind, {}))
    expected = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"), "int32")
    image = decode(tf.constant(file))
    assert image.dtype == tf.uint8 and np.abs(image - expected).max() <= (4 if kind == "JPEG" else 0)
    window = decode_window(tf.constant(file), lambda shape: tf.constant([5, 7, 20, 31]))
    np.testing.assert_array_equal(window, image[5:25, 7:38])


@pytest.mark.parametrize("least_size,factor", [(129, 1), (128, 2), (64, 4), (20, 8), (1, 8)])
def test_scaled_decoding_is_that_of_pillow(color_blocks, least_size, factor):
    file = encoded(color_blocks.resize((512, 384), Image.Resampling.NEAREST).crop((0, 0, 401, 301)), "JPEG", quality=95)
    reference = Image.open(io.BytesIO(file))
    reference.draft("RGB", (400 // factor, 300 // factor))
    expected = np.asarray(reference, "int32")
    area = tf.constant([16, 32, 285, 256])
    window = np.int32(decode_window(tf.constant(file), lambda shape: area, least_size))
    assert window.shape == ({1: 285, 2: 143, 4: 71, 8: 36}[factor], 256 // factor, 3)
    top, left = 16 // factor, 32 // factor
    part = expected[top : top + window.shape[0], left : left + window.shape[1]]
    assert part.shape == window.shape
    assert np.abs(window - part)[2:-2, 2:-2].max() <= 4  # colors at the edge: see `decode_window`


def test_scaled_decoding_leaves_other_files(color_blocks):
    file = tf.constant(encoded(color_blocks, "PNG"))
    area = tf.constant([5, 7, 20, 31])
    np.testing.assert_array_equal(decode_window(file, lambda shape: area, 1), decode_window(file, lambda shape: area))
