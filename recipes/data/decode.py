"""Decodes image files to RGB pixels in TensorFlow's graphs. H W pixels.

JPEG, PNG, GIF (the first frame), BMP and WebP files of any colors become (H, W, 3) uint8 RGB, including gray, palette,
CMYK and 16-bit files; transparency is dropped. TensorFlow reads neither TIFF nor the palette of a BMP file: both count
as corrupt. Photographs of a turned camera are turned upright, as their EXIF data say, if they are JPEG files.
"""

import tensorflow as tf

from keras_vit.recipes.data.image_dataset import ImageDataset
from keras_vit.recipes.data.orientation import UPRIGHT, orientation, turn_upright


def decode(encoded):
    """Decodes an encoded image, a scalar string, to (H, W, 3) uint8; returns decoded images unchanged."""
    if encoded.dtype != tf.string:
        return encoded
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    # Byte 28: bits per pixel. At 8, TensorFlow returns the indices of the palette's colors as gray values.
    has_palette = (tf.strings.substr(encoded, 0, 2) == b"BM") & (tf.strings.substr(encoded, 28, 1) == b"\x08")
    check = tf.debugging.Assert(~has_palette, ["BMP files with a palette are not supported by TensorFlow"])
    with tf.control_dependencies([check]):
        return tf.ensure_shape(turn_upright(tf.identity(image), orientation(encoded)), (None, None, 3))


def decode_window(encoded, window):
    """Decodes a window of an image; of an upright JPEG file, not much more than the window is decoded.

    JPEG files store colors at a lower resolution than brightness: at the edge of the window, colors may differ a little
    from those of the whole image, since what is outside is unknown.

    Args:
        encoded: As for `decode`.
        window: Function from the image's shape, (H, W, any) int32, to (top, left, height, width) int32.

    Returns:
        (height, width, 3) uint8.
    """

    def from_jpeg():
        return tf.io.decode_and_crop_jpeg(encoded, window(tf.io.extract_jpeg_shape(encoded)), channels=3)

    def from_pixels():
        image = decode(encoded)
        top, left, height, width = tf.unstack(window(tf.shape(image)))
        return image[top : top + height, left : left + width]

    if encoded.dtype != tf.string:
        return from_pixels()
    is_jpeg = tf.strings.substr(encoded, 0, 3) == b"\xff\xd8\xff"
    in_part = is_jpeg & (orientation(encoded) == UPRIGHT)
    return tf.ensure_shape(tf.cond(in_part, from_jpeg, from_pixels), (None, None, 3))


def decode_stored(dataset: ImageDataset, stored):
    """Decodes an image as `dataset.read` yields it, an encoded image or its path, to (H, W, 3) uint8 in [0, 255]."""
    image = decode(tf.io.read_file(stored) if dataset.stores_paths else stored)
    return image * tf.constant(255 // dataset.max_value, tf.uint8) if dataset.max_value < 255 else image


def decode_examples(dataset: ImageDataset, examples):
    """Decodes the images of a dataset of (name, stored image, label).

    A corrupt image becomes (0, 0, 3): its transform fails each time, as that of the encoded image would.
    """
    empty = tf.data.Dataset.from_tensors(tf.zeros((0, 0, 3), tf.uint8))

    def decode_one(name, stored, label):
        image = tf.data.Dataset.from_tensors(stored).map(lambda stored: decode_stored(dataset, stored)).ignore_errors()
        return image.concatenate(empty).take(1).map(lambda image: (name, image, label))

    return examples.interleave(decode_one, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
