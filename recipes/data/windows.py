"""Random windows of training images, and decoding of a window alone. H W pixels."""

from functools import partial

import numpy as np
import tensorflow as tf

from keras_vit.images.decoding import decode, is_upright_jpeg, jpeg_shape

FACTORS = (1, 2, 4, 8)  # by which libjpeg divides the size of an image while it decodes it
WINDOW_ATTEMPTS, WIDEST = 10, 4 / 3  # of the crop "torchvision"


def inception_window(key, min_area: float):
    """Returns a function that draws a window, as `decode_window` takes it: random area, aspect ratio 3/4 to 4/3.

    `min_area` is the smallest fraction of the image, in (0, 1]. If no window fits, it is the whole image.
    """

    def window(shape):
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.concat([shape[:2], [3]], 0),
            tf.zeros((1, 0, 4)),
            key,
            min_object_covered=0.0,  # otherwise the area is at least 0.1 of the image
            area_range=(min_area, 1.0),
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], size[:2]], 0)

    return window


def torchvision_window(key, min_area: float):
    """Returns a function that draws a window, as `decode_window` takes it: torchvision's `RandomResizedCrop`.

    The area is uniform in [min_area, 1] of the image, the logarithm of width / height uniform between those of 3/4 and
    4/3. `inception_window` draws a uniform height, and so smaller areas. If none of ten windows fits, it is the whole
    image, of longer ones the central part, of 4/3 or 3/4.
    """
    draws = tf.random.stateless_uniform((4, WINDOW_ATTEMPTS), key)

    def window(shape):
        image = tf.cast(shape[:2], tf.float32)  # height, width
        area = tf.reduce_prod(image) * (min_area + (1.0 - min_area) * draws[0])
        aspect = WIDEST ** (2.0 * draws[1] - 1.0)
        sides = tf.round(tf.sqrt(tf.stack([area / aspect, area * aspect], 1)))  # (WINDOW_ATTEMPTS, 2)
        fits = tf.reduce_all((sides > 0) & (sides <= image), 1)
        chosen, some = tf.argmax(fits), tf.reduce_any(fits)
        size = tf.where(some, sides[chosen], tf.minimum(image, tf.round(WIDEST * image[::-1])))
        begin = tf.where(some, draws[2:, chosen] * (image - size + 1.0), (image - size) / 2.0)
        return tf.cast(tf.concat([begin, size], 0), tf.int32)

    return window


WINDOWS = {"inception": inception_window, "torchvision": torchvision_window}


def decode_window(
    encoded, window, least_size: tuple[int, int] | None = None, pixel_range: tuple[int, int] | None = None
):
    """Decodes a window of an image; of an upright JPEG file, not much more than the window is decoded.

    JPEG files store colors at a lower resolution than brightness: at the edge of the window, colors may differ a little
    from those of the whole image, since what is outside is unknown.

    Args:
        window: Function from the image's shape, (H, W, any) int32, to (top, left, height, width) int32.
        least_size: (height, width): JPEG files are decoded at the smallest of 1/8, 1/4, 1/2 and 1 of their size that
            leaves both sides of the window at least this long; None for their size. The decoder's mean over 2 x 2, 4 x
            4 or 8 x 8 pixels is then the first part of a resize, and takes less time than decoding all of them.
        pixel_range: See `decode`.

    Returns:
        (height, width, 3) uint8, of which both sides are divided by the factor that JPEG files are scaled by.
    """

    def from_jpeg():
        shape = jpeg_shape(encoded)
        area = window(shape)
        if least_size is None:
            return tf.io.decode_and_crop_jpeg(encoded, area, channels=3)
        fits = tf.reduce_all(area[2:] >= np.outer(FACTORS[1:], least_size), 1)
        fitting = tf.reduce_sum(tf.cast(fits, tf.int32))
        return tf.switch_case(fitting, [partial(_scaled_window, encoded, shape, area, factor) for factor in FACTORS])

    def from_pixels():
        image = decode(encoded, pixel_range=pixel_range)
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
