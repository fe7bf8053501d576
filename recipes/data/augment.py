"""RandAugment, AutoAugment and erasing of one image, each a function of its random numbers. H W pixels.

Random numbers are uniform in [0, 1) and drawn by the caller from (seed, number of the image); `*_draws` say how many
are needed. Only the operation that was chosen is computed.
"""

import math

import tensorflow as tf

from keras_vit.recipes.data.image_ops import operations, tf_models_augment
from keras_vit.recipes.recipe import Augment

DRAWS_PER_OPERATION = 4  # which one or whether, sign, and a place

# Random erasing as in tf-models-official and timm: the share of the area, the least aspect ratio, and attempts.
ERASED_AREA = (0.02, 1 / 3)
ERASED_ASPECT = 0.3
ATTEMPTS = 10


def augmentation(augment: Augment):
    """What `augment` changes of an image before it is scaled.

    Returns:
        (function, draws): from (H, W, 3) uint8 of static shape and (draws,) random numbers to another such image.

    Raises:
        ValueError: Both policies, or a magnitude out of range.
    """
    if augment.autoaugment and augment.randaugment_layers:
        raise ValueError(
            "RandAugment replaces AutoAugment: set either randaugment_layers or autoaugment. Received: "
            f"randaugment_layers={augment.randaugment_layers}, autoaugment=True"
        )
    if not 0 <= augment.randaugment_magnitude <= 30:
        raise ValueError(f"`randaugment_magnitude` must be in [0, 30]. Received: {augment.randaugment_magnitude}")
    if augment.autoaugment:
        return _autoaugment()
    return _randaugment(augment.randaugment_layers, augment.randaugment_magnitude)


def erase(image, probability: float, draws, noise_key, mean=0.0, deviation=1.0):
    """Puts normal noise into a rectangle of an image (arXiv 1708.04896; noise as in timm and tf-models-official).

    Args:
        image: (H, W, 3) float of static shape.
        probability: Of erasing at all.
        draws: (1 + 4 * ATTEMPTS,) random numbers: the first rectangle that fits is taken.
        noise_key: (2,) seed of the noise.
        mean, deviation: Of the noise, numbers or (3,).
    """
    height, width, _ = image.shape
    attempts = tf.reshape(draws[1:], (ATTEMPTS, 4))
    area = height * width * (ERASED_AREA[0] + attempts[:, 0] * (ERASED_AREA[1] - ERASED_AREA[0]))
    aspect = tf.exp((2.0 * attempts[:, 1] - 1.0) * -math.log(ERASED_ASPECT))
    tall, wide = tf.round(tf.sqrt(area * aspect)), tf.round(tf.sqrt(area / aspect))  # (ATTEMPTS,)
    fits = (tall < height) & (wide < width)
    chosen = tf.argmax(fits)
    top = tf.floor(attempts[chosen, 2] * (height - tall[chosen] + 1.0))
    left = tf.floor(attempts[chosen, 3] * (width - wide[chosen] + 1.0))

    def erased():
        rows, columns = tf.range(height, dtype=tf.float32), tf.range(width, dtype=tf.float32)
        inside = ((rows >= top) & (rows < top + tall[chosen]))[:, None, None]
        inside &= ((columns >= left) & (columns < left + wide[chosen]))[None, :, None]  # (H, W, 1)
        noise = tf.random.stateless_normal(image.shape, noise_key)
        return tf.where(inside, noise * tf.cast(deviation, tf.float32) + tf.cast(mean, tf.float32), image)

    return tf.cond((draws[0] < probability) & tf.reduce_any(fits), erased, lambda: image)


def _randaugment(layers, magnitude):
    """Each layer is one of 16 operations or, as in tf-models-official, none."""
    if not layers:
        return lambda image, draws: image, 0
    functions = list(operations().values())

    def distort(image, draws):
        for choice, *others in _each_operation(draws):
            branches = [_branch(function, image, magnitude, others) for function in functions]
            image = _one_of([*branches, lambda image=image: image], choice)
        return image

    return distort, layers * DRAWS_PER_OPERATION


def _autoaugment():
    """One of the 25 pairs of operations, found on ImageNet, that tf-models-official has; each with its probability."""
    functions, policy = operations(), tf_models_augment().AutoAugment.policy_reduced_imagenet()

    def pair(image, members, draws):
        for (name, probability, level), (coin, *others) in zip(members, draws):
            branch = _branch(functions[name], image, float(level), others)
            image = tf.cond(coin < probability, branch, lambda image=image: image)
        return image

    def distort(image, draws):
        each = _each_operation(draws[1:])
        return _one_of([lambda members=members: pair(image, members, each) for members in policy], draws[0])

    return distort, 1 + 2 * DRAWS_PER_OPERATION


def _each_operation(draws):
    """Lists of DRAWS_PER_OPERATION scalars."""
    scalars = tf.unstack(draws)
    return [scalars[i : i + DRAWS_PER_OPERATION] for i in range(0, len(scalars), DRAWS_PER_OPERATION)]


def _branch(function, image, level, draws):
    sign, *place = draws
    return lambda: function(image, level, tf.where(sign < 0.5, -1.0, 1.0), place)


def _one_of(branches, draw):
    return tf.switch_case(tf.cast(draw * len(branches), tf.int32), branches)
