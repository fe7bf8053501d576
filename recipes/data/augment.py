"""The policies RandAugment and AutoAugment, and random erasing, of one image. H W pixels.

Each is a function of the image and of `draws`, random numbers in [0, 1) that the caller draws from (seed, index of the
image). Only the chosen operations are computed; augment_ops.py and augment_pillow.py define them.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from keras_vit.recipes.data.augment_ops import (
    BIG_VISION_OPERATIONS,
    OPERATIONS,
    blend,
    blend_factor,
    mean_gray,
    solarize,
    translation,
)
from keras_vit.recipes.data.augment_pillow import (
    NUM_DRAWS,
    PROBABILITY,
    increasing_operations,
    random_level,
    three_augment,
)
from keras_vit.recipes.recipe import Augment

# Which operation, or whether it is applied; sign; y and x of a point, or of timm's policy whether it is applied and its
# level.
DRAWS_PER_OPERATION = 4

# Random erasing as in tf-models-official and timm: fraction of the area, smallest aspect ratio, attempts.
ERASING_AREA = (0.02, 1 / 3)
ERASING_ASPECT = 0.3
ERASING_ATTEMPTS = 10

# AutoAugment (arXiv 1805.09501): table 9, found on a part of ImageNet, and table 7, on a part of CIFAR-10. A policy is
# 25 pairs of operations (name, probability, level), one of which is drawn for each image.
IMAGENET_POLICY = (
    (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
    (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
    (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
    (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, 4), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, 7)),
    (("Posterize", 0.8, 5), ("Equalize", 1.0, 2)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, 8), ("Posterize", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, 2)),
    (("Equalize", 0.0, 7), ("Equalize", 0.8, 8)),
    (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, 8)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, 9)),
    (("Color", 0.4, 0), ("Equalize", 0.6, 3)),
    (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
    (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
)
CIFAR10_POLICY = (
    (("Invert", 0.1, 7), ("Contrast", 0.2, 6)),
    (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
    (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
    (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.5, 8), ("Equalize", 0.9, 2)),
    (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
    (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
    (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
    (("Equalize", 0.6, 5), ("Equalize", 0.5, 1)),
    (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
    (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
    (("Equalize", 0.3, 7), ("AutoContrast", 0.4, 8)),
    (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
    (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
    (("Solarize", 0.5, 2), ("Invert", 0.0, 3)),
    (("Equalize", 0.2, 0), ("AutoContrast", 0.6, 0)),
    (("Equalize", 0.2, 8), ("Equalize", 0.6, 4)),
    (("Color", 0.9, 9), ("Equalize", 0.6, 6)),
    (("AutoContrast", 0.8, 4), ("Solarize", 0.2, 8)),
    (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
    (("Solarize", 0.4, 5), ("AutoContrast", 0.9, 3)),
    (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.9, 2), ("Solarize", 0.8, 3)),
    (("Equalize", 0.8, 8), ("Invert", 0.1, 3)),
    (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, 1)),
)
# As the code of the authors (tensorflow/models, research/autoaugment/augmentation_transforms.py): higher levels invert
# more values, translations are up to 10 of 32 pixels, and the contrast is Pillow's, around the mean brightness, where
# tf-models-official has the mean of each channel.
CIFAR10_OPERATIONS = OPERATIONS | {
    "Solarize": lambda image, level, sign, point: solarize(image, 256 - int(level / 10 * 256)),
    "TranslateX": translation(7, axis=1),
    "TranslateY": translation(7, axis=0),
    "Contrast": lambda image, level, sign, point: blend(mean_gray(image), image, blend_factor(level)),
}
# Operations and policy by the value of the recipe's field `data.augment.autoaugment`.
AUTOAUGMENT = {"imagenet": (OPERATIONS, IMAGENET_POLICY), "cifar10": (CIFAR10_OPERATIONS, CIFAR10_POLICY)}


def augmentation(augment: Augment, mean=(0.5, 0.5, 0.5)) -> tuple[Callable, int]:
    """Returns the RandAugment, AutoAugment or 3-Augment of a recipe, which is applied before an image is normalized.

    Returns:
        (function, num_draws): the function from an image, (H, W, 3) uint8 of static shape, and (num_draws,) random
        numbers to an image of the same shape; without a policy it returns the image, and num_draws is 0.
    """
    if augment.three_augment:
        return three_augment, NUM_DRAWS
    if augment.autoaugment:
        return _autoaugment(augment.autoaugment)
    if not augment.randaugment_layers:
        return lambda image, draws: image, 0
    if augment.randaugment_policy == "timm":
        return _timm_randaugment(augment.randaugment_layers, augment.randaugment_magnitude, mean)
    return _randaugment(augment.randaugment_layers, augment.randaugment_magnitude)


def erase(image, probability: float, draws, noise_key, mean=0.0, std=1.0):
    """Random erasing: replaces a rectangle by normal noise (arXiv 1708.04896; as in timm and tf-models-official).

    Args:
        draws: (1 + 4 * ERASING_ATTEMPTS,) random numbers; the first rectangle that fits is erased.
        mean, std: Mean and standard deviation of the noise, scalars or (3,).
    """
    height, width, _ = image.shape
    attempts = tf.reshape(draws[1:], (ERASING_ATTEMPTS, 4))
    area = height * width * (ERASING_AREA[0] + attempts[:, 0] * (ERASING_AREA[1] - ERASING_AREA[0]))
    aspect = tf.exp((2.0 * attempts[:, 1] - 1.0) * -math.log(ERASING_ASPECT))
    heights, widths = tf.round(tf.sqrt(area * aspect)), tf.round(tf.sqrt(area / aspect))  # (ERASING_ATTEMPTS,)
    fits = (heights < height) & (widths < width)
    chosen = tf.argmax(fits)
    top = tf.floor(attempts[chosen, 2] * (height - heights[chosen] + 1.0))
    left = tf.floor(attempts[chosen, 3] * (width - widths[chosen] + 1.0))

    def erased():
        rows, columns = tf.range(height, dtype=tf.float32), tf.range(width, dtype=tf.float32)
        inside = ((rows >= top) & (rows < top + heights[chosen]))[:, None, None]
        inside &= ((columns >= left) & (columns < left + widths[chosen]))[None, :, None]  # (H, W, 1)
        noise = tf.random.stateless_normal(image.shape, noise_key)
        return tf.where(inside, noise * tf.cast(std, tf.float32) + tf.cast(mean, tf.float32), image)

    return tf.cond((draws[0] < probability) & tf.reduce_any(fits), erased, lambda: image)


def _randaugment(layers, magnitude):
    """big_vision's: each layer applies one of 16 operations."""
    functions = list(BIG_VISION_OPERATIONS.values())

    def distort(image, draws):
        for choice, *parameters in _group_draws(draws):
            image = _apply_one([_branch(function, image, magnitude, parameters) for function in functions], choice)
        return image

    return distort, layers * DRAWS_PER_OPERATION


def _timm_randaugment(layers, magnitude, mean):
    """timm's rand-mstd0.5-inc1: each layer applies one of 15 operations with probability 0.5, at a random level."""
    functions = list(increasing_operations(tuple(round(255 * value) for value in mean)).values())

    def distort(image, draws):
        for choice, sign, applied, level in _group_draws(draws):
            level, sign = random_level(magnitude, level), tf.where(sign < 0.5, -1.0, 1.0)
            branches = [lambda f=f, image=image, level=level, sign=sign: f(image, level, sign) for f in functions]
            image = tf.cond(
                applied < PROBABILITY,
                lambda branches=branches, choice=choice: _apply_one(branches, choice),
                lambda image=image: image,
            )
        return image

    return distort, layers * DRAWS_PER_OPERATION


def _autoaugment(dataset):
    """One of the 25 pairs of operations of the policy for a dataset, each with a probability."""
    functions, policy = AUTOAUGMENT[dataset]

    def apply_pair(image, pair, draws):
        for (name, probability, level), (draw, *parameters) in zip(pair, draws):
            branch = _branch(functions[name], image, float(level), parameters)
            image = tf.cond(draw < probability, branch, lambda image=image: image)
        return image

    def distort(image, draws):
        groups = _group_draws(draws[1:])
        return _apply_one([lambda pair=pair: apply_pair(image, pair, groups) for pair in policy], draws[0])

    return distort, 1 + 2 * DRAWS_PER_OPERATION


def _group_draws(draws):
    """Lists of DRAWS_PER_OPERATION scalars, one list for each operation."""
    scalars = tf.unstack(draws)
    return [scalars[i : i + DRAWS_PER_OPERATION] for i in range(0, len(scalars), DRAWS_PER_OPERATION)]


def _branch(function, image, level, draws):
    sign, *point = draws
    return lambda: function(image, level, tf.where(sign < 0.5, -1.0, 1.0), point)


def _apply_one(branches, draw):
    return tf.switch_case(tf.cast(draw * len(branches), tf.int32), branches)
