"""Mixup and CutMix of a batch. B batch, H W pixels, C classes.

One share for a whole batch, as the code of AugReg and timm's for DeiT have it (tf-models-official draws one for each
image, from TensorFlow's global generator). Each image is mixed with the next one of its batch.
"""

import tensorflow as tf

from keras_vit.recipes.recipe import Augment


def mix(images, labels, augment: Augment, key):
    """Mixes a batch by mixup or CutMix; with both, either is drawn.

    Args:
        images: (B, H, W, 3) float of static H and W.
        labels: (B, C) float32.
        augment: Its `mixup_alpha` and `cutmix_alpha`.
        key: (2,) int64 seed: equal keys give equal batches, and the next three in its second number are used too.

    Returns:
        Images and labels of the same shapes.
    """
    functions = [
        lambda mixed=mixed, alpha=alpha: mixed(images, labels, alpha, key)
        for mixed, alpha in ((mixup, augment.mixup_alpha), (cutmix, augment.cutmix_alpha))
        if alpha
    ]
    if len(functions) == 1:
        return functions[0]()
    return tf.cond(tf.random.stateless_uniform((), _fold(key, 3)) < 0.5, *functions)


def mixup(images, labels, alpha: float, key):
    """share * image + (1 - share) * next image (arXiv 1710.09412); the larger share is the image's own."""
    share = _beta(alpha, key)
    share = tf.maximum(share, 1.0 - share)
    return tuple(share * own + (1.0 - share) * _next(own) for own in (images, labels))


def cutmix(images, labels, alpha: float, key):
    """A rectangle of each image becomes the next one's (arXiv 1905.04899).

    Its center is anywhere, and what lies outside of the image is cut off; labels follow the area that is left.
    """
    height, width = images.shape[1:3]
    side = tf.sqrt(1.0 - _beta(alpha, key))
    bounds = []
    for pixels, draw in zip((height, width), tf.unstack(tf.random.stateless_uniform((2,), _fold(key, 2)))):
        half, center = tf.floor(side * pixels) // 2.0, tf.floor(draw * pixels)
        bounds.append((tf.maximum(center - half, 0.0), tf.minimum(center + half, float(pixels))))
    (top, bottom), (left, right) = bounds
    rows, columns = tf.range(height, dtype=tf.float32), tf.range(width, dtype=tf.float32)
    inside = ((rows >= top) & (rows < bottom))[:, None, None] & ((columns >= left) & (columns < right))[None, :, None]
    share = 1.0 - (bottom - top) * (right - left) / (height * width)
    # Arithmetic: tf.where with a condition of another shape takes several times as long.
    taken = tf.cast(inside, images.dtype)  # (H, W, 1)
    taken = tf.reshape(tf.repeat(taken, 3, axis=2), (height, width * 3))
    flat = tf.reshape(images, (-1, height, width * 3))  # (B, H, W * 3)
    mixed = tf.reshape(flat + taken * (_next(flat) - flat), tf.shape(images))
    return tf.ensure_shape(mixed, images.shape), share * labels + (1.0 - share) * _next(labels)


def _fold(key, number):
    return key + tf.constant([0, number], key.dtype)


def _next(batch):
    return tf.roll(batch, -1, axis=0)


def _beta(alpha, key):
    """Beta(alpha, alpha) in (0, 1), as a ratio of gammas; float64, since gammas of a small alpha are tiny."""
    gammas = tf.random.stateless_gamma((2,), _fold(key, 1), tf.constant(alpha, tf.float64), dtype=tf.float64)
    one, other = tf.unstack(gammas)
    return tf.cast(one / (one + other), tf.float32)
