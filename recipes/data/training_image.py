"""What becomes of one training image: decoded, cropped, flipped, resized, augmented, scaled. H W pixels."""

import numpy as np
import tensorflow as tf

from keras_vit.recipes.data.augment import ATTEMPTS, augmentation, erase
from keras_vit.recipes.data.decode import decode, decode_window, inception_window, resized, scaled
from keras_vit.recipes.recipe import Data


def check_images(data: Data):
    """Raises ValueError for fields that cannot be, or do not fit each other."""
    if data.crop == "resize" and data.resize_size < data.image_size:
        raise ValueError(
            f"An image of resize_size={data.resize_size} pixels has no crop of image_size={data.image_size}."
        )
    if not 0.0 < data.min_crop_area <= 1.0:
        raise ValueError(f"`min_crop_area` must be above 0 and at most 1. Received: {data.min_crop_area}")
    augment = data.augment
    if not 0.0 <= augment.erasing <= 1.0:
        raise ValueError(f"`erasing` is a probability, in [0, 1]. Received: {augment.erasing}")
    for name in ("randaugment_layers", "mixup_alpha", "cutmix_alpha"):
        if getattr(augment, name) < 0:
            raise ValueError(f"`{name}` must be at least 0, which turns it off. Received: {getattr(augment, name)}")


def training_image(data: Data, seed: int, mean, std, brightest: int = 255):
    """The function from (number, image) to an image (size, size, 3) float32, (x / 255 - mean) / std.

    Args:
        data: The recipe's.
        seed: With the image's number in the run, scalar int64, the key of all that is random.
        mean, std: Three numbers each.
        brightest: The largest value of a pixel.
    """
    distort, distort_draws = augmentation(data.augment)
    crop_draws, erase_draws = 2, 1 + 4 * ATTEMPTS if data.augment.erasing else 0
    size, in_uint8 = data.image_size, distort_draws > 0
    scale = ((0.0,) * 3, (1 / 255,) * 3) if in_uint8 else (mean, std)

    # Of mean 0 and deviation 1 where the recipe's mean and deviation scale the images.
    noise = np.subtract(data.mean, mean) / np.array(std), np.divide(data.std, std)

    def prepare(number, encoded):
        def key(i):
            return tf.stack([tf.constant(seed, tf.int64), 4 * number + i])

        draws = tf.random.stateless_uniform((1 + crop_draws + distort_draws + erase_draws,), key(1))
        flip, crop, distorting, erasing = tf.split(draws, [1, crop_draws, distort_draws, erase_draws])
        if data.crop == "inception":
            image = decode_window(encoded, inception_window(key(0), data.min_crop_area))
        else:
            image = decode(encoded)
        if brightest < 255 and encoded.dtype == tf.string:
            image *= tf.constant(255 // brightest, tf.uint8)
        if data.flip:
            image = tf.cond(flip[0] < 0.5, lambda image=image: tf.reverse(image, [1]), lambda image=image: image)
        image = scaled(image, *scale)
        if data.crop == "resize":
            image = _square(resized(image, (data.resize_size, data.resize_size), data.interpolation), size, crop)
        else:
            image = resized(image, (size, size), data.interpolation)
        image = tf.ensure_shape(image, (size, size, 3))
        if in_uint8:
            # Bicubic values may lie outside of [0, 255].
            image = image if data.interpolation == "bilinear" else tf.clip_by_value(image, 0.0, 255.0)
            image = scaled(distort(tf.cast(image + 0.5, tf.uint8), distorting), mean, std)
        if data.augment.erasing:
            image = erase(image, data.augment.erasing, erasing, key(2), *noise)
        return image

    return prepare


def _square(image, size, draws):
    """A random square of a larger one."""
    top, left = tf.unstack(tf.cast(draws * (image.shape[0] - size + 1), tf.int32))
    return image[top : top + size, left : left + size]
