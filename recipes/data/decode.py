"""Decodes windows of images, and the images that a dataset stores, in TensorFlow's graphs. H W pixels."""

from functools import partial

import tensorflow as tf

from keras_vit.decoding import decode, is_upright_jpeg
from keras_vit.recipes.data.image_dataset import ImageDataset

FACTORS = (1, 2, 4, 8)  # by which libjpeg divides the size of an image while it decodes it


def decode_window(encoded, window, least_size: int | None = None):
    """Decodes a window of an image; of an upright JPEG file, not much more than the window is decoded.

    JPEG files store colors at a lower resolution than brightness: at the edge of the window, colors may differ a little
    from those of the whole image, since what is outside is unknown.

    Args:
        window: Function from the image's shape, (H, W, any) int32, to (top, left, height, width) int32.
        least_size: Pixels: JPEG files are decoded at the smallest of 1/8, 1/4, 1/2 and 1 of their size that leaves both
            sides of the window at least this long; None for their size. The decoder's mean over 2 x 2, 4 x 4 or 8 x 8
            pixels is then the first part of a resize, and takes less time than decoding all of them.

    Returns:
        (height, width, 3) uint8, of which both sides are divided by the factor that JPEG files are scaled by.
    """

    def from_jpeg():
        shape = tf.io.extract_jpeg_shape(encoded)
        area = window(shape)
        if least_size is None:
            return tf.io.decode_and_crop_jpeg(encoded, area, channels=3)
        fitting = tf.reduce_sum(tf.cast(tf.reduce_min(area[2:]) >= least_size * tf.constant(FACTORS[1:]), tf.int32))
        return tf.switch_case(fitting, [partial(_scaled_window, encoded, shape, area, factor) for factor in FACTORS])

    def from_pixels():
        image = decode(encoded)
        top, left, height, width = tf.unstack(window(tf.shape(image)))
        return image[top : top + height, left : left + width]

    if encoded.dtype != tf.string:
        return from_pixels()
    return tf.ensure_shape(tf.cond(is_upright_jpeg(encoded), from_jpeg, from_pixels), (None, None, 3))


def _scaled_window(encoded, shape, window, factor):
    """Decodes a window of a JPEG file of (H, W, C) at 1 / factor of its size."""
    most = (shape[:2] + factor - 1) // factor  # the decoder rounds up
    begin = window[:2] // factor
    sides = tf.minimum((window[2:] + factor // 2) // factor, most - begin)
    return tf.io.decode_and_crop_jpeg(encoded, tf.concat([begin, sides], 0), channels=3, ratio=factor)


def decode_stored(dataset: ImageDataset, stored):
    """Decodes an image as `dataset.read` yields it, an encoded image or its path, to (H, W, 3) uint8 in [0, 255]."""
    image = decode(tf.io.read_file(stored) if dataset.stores_paths else stored)
    return image * tf.constant(255 // dataset.max_value, tf.uint8) if dataset.max_value < 255 else image


def decode_examples(dataset: ImageDataset, examples):
    """Decodes the images of a dataset of (name, stored image, label).

    A corrupt image becomes (0, 0, 3): its transform fails each time, as that of the encoded image would. Only errors of
    one image are ignored: an error of a file that holds many would recur forever.
    """
    empty = tf.data.Dataset.from_tensors(tf.zeros((0, 0, 3), tf.uint8))

    def decode_one(name, stored, label):
        image = tf.data.Dataset.from_tensors(stored).map(lambda stored: decode_stored(dataset, stored)).ignore_errors()
        return image.concatenate(empty).take(1).map(lambda image: (name, image, label))

    return examples.interleave(decode_one, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
