"""From an image's file to the pixels of its model. H W pixels.

JPEG, PNG, GIF (the first frame), BMP and WebP files of any colors become (H, W, 3) uint8 RGB: gray, palette, CMYK and
16-bit files too; transparency is dropped. TensorFlow does not read TIFF, nor the palette of a BMP file: both count as
corrupt.
"""

import math

import numpy as np
import tensorflow as tf

from keras_vit.recipes.recipe import Data


def decode(encoded):
    """The pixels of an encoded image, a scalar string: (H, W, 3) uint8. Decoded ones stay as they are."""
    if encoded.dtype != tf.string:
        return encoded
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    # 28: bits per pixel. Of 8, TensorFlow returns the numbers of the palette's colors as if they were gray.
    paletted = (tf.strings.substr(encoded, 0, 2) == b"BM") & (tf.strings.substr(encoded, 28, 1) == b"\x08")
    with tf.control_dependencies([tf.debugging.Assert(~paletted, ["TensorFlow does not read palettes of BMP files"])]):
        return tf.ensure_shape(tf.identity(image), (None, None, 3))


def decode_window(encoded, window):
    """Decodes a part of an image; of a JPEG file, not much more than that part is decoded.

    Colors of a JPEG file, which has fewer of them than of brightness, may differ a little at the window's edge from
    those of the whole image: what lies outside is not known.

    Args:
        encoded: As of `decode`.
        window: Function from the image's shape, (H, W, anything) int32, to (top, left, height, width) int32.

    Returns:
        (height, width, 3) uint8.
    """

    def of_jpeg():
        return tf.io.decode_and_crop_jpeg(encoded, window(tf.io.extract_jpeg_shape(encoded)), channels=3)

    def of_pixels():
        image = decode(encoded)
        top, left, height, width = tf.unstack(window(tf.shape(image)))
        return image[top : top + height, left : left + width]

    if encoded.dtype != tf.string:
        return of_pixels()
    part = tf.cond(tf.strings.substr(encoded, 0, 3) == b"\xff\xd8\xff", of_jpeg, of_pixels)
    return tf.ensure_shape(part, (None, None, 3))


def inception_window(key, min_area: float):
    """A window of a random area and aspect ratio, 3/4 to 4/3, as in the paper's code; see `decode_window`.

    Args:
        key: (2,) seed.
        min_area: The smallest share of the image, in (0, 1]. If none fits, the window is the whole image.
    """

    def window(shape):
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.concat([shape[:2], [3]], 0),
            tf.zeros((1, 0, 4)),
            key,
            min_object_covered=0.0,  # else never less than 0.1 of the image
            area_range=(min_area, 1.0),
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], size[:2]], 0)

    return window


def scaled(image, mean, std):
    """(x / 255 - mean) / std of uint8 pixels (..., 3), in float32.

    Scaling before a resize is the same as after it, and here it is one pass over a quarter of the memory. A channel's
    own mean takes longer, so there is a way for each.
    """
    if len(set(mean)) == len(set(std)) == 1:
        low, high = -mean[0] / std[0], (1.0 - mean[0]) / std[0]
        return tf.raw_ops.Dequantize(
            input=tf.bitcast(image, tf.quint8), min_range=low, max_range=high, mode="MIN_COMBINED"
        )
    mean, std = (255.0 * np.array(values, "float32") for values in (mean, std))
    return tf.cast(image, tf.float32) * (1.0 / std) - mean / std


def resized(image, size, interpolation: str):
    """Resizes (H, W, 3) as the paper's code does, without smoothing before it shrinks: (*size, 3) float32."""
    return tf.image.resize(image, size, method=interpolation)


def evaluation_image(data: Data, encoded):
    """An encoded image as `keras_vit.Preprocessing` of the recipe's fields prepares it: (size, size, 3) float32."""
    image = scaled(decode(encoded), data.mean, data.std)
    size = data.image_size
    target = math.floor(size / data.evaluation_crop + 1e-6)
    if data.evaluation_resize == "squash":
        shape = [target, target]
    else:
        sides = tf.cast(tf.shape(image)[:2], tf.float64)
        scale = target / tf.reduce_min(sides)
        shape = tf.maximum(target, tf.cast(sides * scale + 1e-6, tf.int32))
    image = resized(image, shape, data.interpolation)
    top, left = (tf.cast(tf.round((side - size) / 2), tf.int32) for side in tf.unstack(tf.convert_to_tensor(shape)))
    return tf.ensure_shape(image[top : top + size, left : left + size], (size, size, 3))
