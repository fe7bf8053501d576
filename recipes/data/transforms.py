"""Transforms of one image to the model's input, for training and for evaluation. H W pixels.

Training: decode, crop, flip, resize, augment, normalize. Evaluation: decode, resize, central crop, normalize.
"""

import keras
import numpy as np
import tensorflow as tf

from keras_vit.images import as_size
from keras_vit.images.decoding import decode, resize_and_crop
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.recipes.data.augment import ERASING_ATTEMPTS, augmentation, erase
from keras_vit.recipes.data.windows import WINDOWS, decode_window
from keras_vit.recipes.keras_internals import draws_from
from keras_vit.recipes.recipe import Data

PIXELS = (0.0,) * 3, (1 / 255,) * 3  # mean and std that leave pixels in [0, 255]
SIMPLE_MARGIN = 4  # pixels, of the crop "simple" (facebookresearch/deit, augment.py)


def training_transform(data: Data, seed: int, mean, std, max_value: int = 255, augment=None):
    """Returns the function from (index, image) to an image (height, width, 3) float32, (x / 255 - mean) / std.

    Args:
        seed: With the index of the image in the run, a scalar int64, it determines all randomness.
        max_value: Largest value of a pixel of an encoded image; decoded ones are in [0, 255].
        augment: A further augmentation, see `keras_vit.recipes.train`.
    """
    distort, num_distort_draws = augmentation(data.augment, data.mean)
    num_crop_draws, num_erase_draws = 2, 1 + 4 * ERASING_ATTEMPTS if data.augment.erasing else 0
    size, in_uint8 = data.input_size, num_distort_draws > 0
    scale = PIXELS if in_uint8 or augment else _scale_before_resize(mean, std)

    # Mean 0 and standard deviation 1 where the recipe's mean and std normalize the images.
    noise = np.subtract(data.mean, mean) / np.array(std), np.divide(data.std, std)

    def transform(index, encoded):
        def key(i):
            return tf.stack([tf.constant(seed, tf.int64), 4 * index + i])

        sizes = [1, num_crop_draws, num_distort_draws, num_erase_draws]
        flip_draw, crop_draws, distort_draws, erase_draws = tf.split(
            tf.random.stateless_uniform((sum(sizes),), key(1)), sizes
        )
        if data.crop in WINDOWS:
            least_size = size if data.scaled_decoding else None
            window = WINDOWS[data.crop](key(0), data.min_crop_area)
            image = decode_window(encoded, window, least_size, data.pixel_range)
        else:
            image = decode(encoded, pixel_range=data.pixel_range)
        if max_value < 255 and encoded.dtype == tf.string:
            image *= tf.constant(255 // max_value, tf.uint8)
        if data.flip:
            image = tf.cond(flip_draw[0] < 0.5, lambda image=image: tf.reverse(image, [1]), lambda image=image: image)
        image = normalize(image, *scale)
        if data.crop == "simple":
            image = _random_crop(_with_margin(image, data), size, crop_draws)
        elif data.crop == "resize":
            image = _random_crop(resize(image, as_size(data.resize_size), data), size, crop_draws)
        else:
            image = resize(image, size, data)
        if data.crop == "pad":
            image = _random_crop(_padded(image, *scale), size, crop_draws)
        image = tf.ensure_shape(image, (*size, 3))
        if data.interpolation == "bicubic" and (in_uint8 or augment):  # values may be outside of [0, 255]
            image = tf.clip_by_value(image, 0.0, 255.0)
        if in_uint8:
            image = distort(tf.cast(image + 0.5, tf.uint8), distort_draws)
        if augment:
            image = _augmented(augment, tf.cast(image, tf.float32), key(3))
        if image.dtype == tf.uint8:
            image = normalize(image, mean, std)
        elif scale is PIXELS:
            image = normalize_floats(image, mean, std)
        if data.augment.erasing:
            image = erase(image, data.augment.erasing, erase_draws, key(2), *noise)
        return image

    return transform


def _augmented(augment, image, key):
    """An image (H, W, 3) float32 in [0, 255] after a user's augmentation, see `keras_vit.recipes.train`."""
    seed = tf.random.stateless_uniform((2,), key, minval=None, maxval=None, dtype=tf.int32)
    if isinstance(augment, keras.Layer):
        with draws_from(seed):
            augmented = augment(image[None], training=True)[0]
    else:
        augmented = augment(image, seed)
    if not tf.is_tensor(augmented) or not augmented.shape.is_compatible_with(image.shape):
        received = augmented.shape if tf.is_tensor(augmented) else type(augmented).__name__
        raise ValueError(f"Expected `augment` to return an image {tuple(image.shape)}. Received: {received}")
    return tf.ensure_shape(tf.cast(augmented, tf.float32), image.shape)


def evaluation_preprocessing(data: Data) -> Preprocessing:
    """How evaluation images are prepared, and how the trained model prepares others."""
    return Preprocessing(
        data.input_size,
        resize=data.evaluation_resize,
        crop_fraction=data.evaluation_crop,
        interpolation=data.interpolation,
        antialias=data.antialias,
        mean=data.mean,
        std=data.std,
        pixel_range=data.pixel_range,
    )


def evaluation_transform(data: Data):
    """Returns the function from an encoded image to (height, width, 3) float32, as `evaluation_preprocessing`."""
    preprocessing = evaluation_preprocessing(data)

    def transform(encoded):
        return normalize_floats(
            resize_and_crop(decode(encoded, pixel_range=data.pixel_range), preprocessing), data.mean, data.std
        )

    return transform


def normalize(image, mean, std):
    """(x / 255 - mean) / std of uint8 pixels (..., 3), in float32.

    Normalizing before a resize is equivalent to normalizing after it, and with equal means and deviations of all
    channels takes one pass over a quarter of the memory.
    """
    if len(set(mean)) == len(set(std)) == 1:
        low, high = -mean[0] / std[0], (1.0 - mean[0]) / std[0]
        return tf.raw_ops.Dequantize(
            input=tf.bitcast(image, tf.quint8), min_range=low, max_range=high, mode="MIN_COMBINED"
        )
    return normalize_floats(tf.cast(image, tf.float32), mean, std)


def _scale_before_resize(mean, std):
    """The mean and std by which to normalize an image before a resize that makes it smaller, see `normalize`."""
    return (mean, std) if len(set(mean)) == len(set(std)) == 1 else PIXELS


def normalize_floats(images, mean, std):
    """(x / 255 - mean) / std of float pixels (..., H, W, 3) in [0, 255], as `keras_vit.images.normalize` in tf.data.

    By row: TensorFlow broadcasts along 3 channels slowly.
    """
    shape, width = tf.shape(images), tf.shape(images)[-2:-1]
    mean, std = (tf.tile(tf.constant(values, tf.float32), width) for values in (mean, std))
    rows = tf.reshape(images, tf.concat([shape[:-2], 3 * width], 0))  # (..., H, W 3)
    return tf.ensure_shape(tf.reshape((rows / 255.0 - mean) / std, shape), images.shape)


def resize(image, size, data: Data):
    """Resizes (H, W, 3) to (*size, 3) float32; without `data.antialias` as the paper's code does."""
    return tf.image.resize(image, size, method=data.interpolation, antialias=data.antialias)


def _with_margin(image, data: Data):
    """Resized until it covers `image_size`, as torchvision's Resize for a square, and 4 pixels mirrored around it."""
    sides = tf.cast(tf.shape(image)[:2], tf.float64)
    size = tf.constant(data.input_size, tf.float64)
    longest = tf.argmax(size / sides)  # times as long
    shape = tf.cast(sides * size[longest] / sides[longest] + 1e-6, tf.int32)
    margin = [[SIMPLE_MARGIN, SIMPLE_MARGIN]] * 2
    return tf.pad(resize(image, shape, data), [*margin, [0, 0]], "REFLECT")


def _padded(image, mean, std):
    """Pads an image, normalized by mean and std, with black: on each side an eighth of its height or width."""
    black = -np.divide(mean, std).astype("float32")
    rows, columns = (side // 8 for side in image.shape[:2])
    return tf.pad(image - black, [[rows, rows], [columns, columns], [0, 0]]) + black


def _random_crop(image, size, draws):
    """A random part of a larger image, of this (height, width); `draws` are two random numbers in [0, 1)."""
    (height, width), room = size, tf.cast(tf.shape(image)[:2] - size + 1, tf.float32)
    top, left = tf.unstack(tf.cast(draws * room, tf.int32))
    return image[top : top + height, left : left + width]
