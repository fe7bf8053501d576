"""Mixup and CutMix of batches.

A whole batch has one mixing weight, as in the code of AugReg and timm (tf-models-official draws one for each image,
from TensorFlow's global generator). Each image is mixed with the next other one of its batch.
"""

import tensorflow as tf

from keras_vit.recipes.recipe import Augment


def mixup_or_cutmix(images, labels, augment: Augment, key):
    """Applies mixup or CutMix to a batch with `mix_probability`; with both alphas above 0, one of the two is drawn.

    Args:
        key: (2,) int64 seed: equal keys produce equal batches. The next three values of key[1] are used too.
    """
    functions = [
        lambda method=method, alpha=alpha: method(images, labels, alpha, key, augment.repeats)
        for method, alpha in ((mixup, augment.mixup_alpha), (cutmix, augment.cutmix_alpha))
        if alpha
    ]

    def mixed():
        if len(functions) == 1:
            return functions[0]()
        return tf.cond(tf.random.stateless_uniform((), _fold_in(key, 3)) < 0.5, *functions)

    if augment.mix_probability == 1.0:
        return mixed()
    return tf.cond(tf.random.stateless_uniform((), key) < augment.mix_probability, mixed, lambda: (images, labels))


def mixup(images, labels, alpha: float, key, repeats: int = 1):
    """weight * image + (1 - weight) * next image (arXiv 1710.09412), with a weight of at least 0.5.

    The next image is `repeats` places further: each image has as many copies in the batch, one after the other.
    """
    weight = _beta(alpha, key)
    weight = tf.maximum(weight, 1.0 - weight)
    return tuple(weight * values + (1.0 - weight) * _next(values, repeats) for values in (images, labels))


def cutmix(images, labels, alpha: float, key, repeats: int = 1):
    """Replaces a rectangle of each image with that of the next one (arXiv 1905.04899).

    Its center is anywhere in the image, to which it is clipped; labels are mixed by the remaining area. The next
    image is `repeats` places further, see `mixup`.
    """
    height, width = images.shape[1:3]
    side = tf.sqrt(1.0 - _beta(alpha, key))
    bounds = []
    for pixels, draw in zip((height, width), tf.unstack(tf.random.stateless_uniform((2,), _fold_in(key, 2)))):
        half, center = tf.floor(side * pixels) // 2.0, tf.floor(draw * pixels)
        bounds.append((tf.maximum(center - half, 0.0), tf.minimum(center + half, float(pixels))))
    (top, bottom), (left, right) = bounds
    rows, columns = tf.range(height, dtype=tf.float32), tf.range(width, dtype=tf.float32)
    inside = ((rows >= top) & (rows < bottom))[:, None, None] & ((columns >= left) & (columns < right))[None, :, None]
    weight = 1.0 - (bottom - top) * (right - left) / (height * width)
    # Arithmetic, since tf.where with a broadcast condition takes several times as long.
    mask = tf.cast(inside, images.dtype)  # (H, W, 1)
    mask = tf.reshape(tf.repeat(mask, 3, axis=2), (height, width * 3))
    flat = tf.reshape(images, (-1, height, width * 3))  # (B, H, W * 3)
    mixed = tf.reshape(flat + mask * (_next(flat, repeats) - flat), tf.shape(images))
    return tf.ensure_shape(mixed, images.shape), weight * labels + (1.0 - weight) * _next(labels, repeats)


def _fold_in(key, offset):
    return key + tf.constant([0, offset], key.dtype)


def _next(batch, repeats):
    return tf.roll(batch, -repeats, axis=0)


def _beta(alpha, key):
    """Draws from Beta(alpha, alpha) as a ratio of gammas; in float64, since gammas of a small alpha are tiny."""
    gammas = tf.random.stateless_gamma((2,), _fold_in(key, 1), tf.constant(alpha, tf.float64), dtype=tf.float64)
    a, b = tf.unstack(gammas)
    return tf.cast(a / (a + b), tf.float32)
