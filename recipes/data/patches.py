"""Patches of images in tf.data, whose graphs have no operations of Keras on JAX. B batch, N patches, P patch side."""

import tensorflow as tf

from keras_vit.images import as_size, patch_grid


def extract_patches(images, patch_size):
    """`keras_vit.layers.ExtractPatches` in TensorFlow: (B, H, W, C) to (B, N, P * P * C), in the same order.

    Args:
        images: Of static height and width.
        patch_size: P in pixels, or (height, width).

    Raises:
        ValueError: The patch does not divide the image.
    """
    height, width, channels = images.shape[1:]
    (p, q), (h, w) = as_size(patch_size, "patch_size"), patch_grid((height, width), patch_size)
    cells = tf.reshape(images, (-1, h, p, w, q, channels))
    cells = tf.transpose(cells, (0, 1, 3, 2, 4, 5))  # (B, h, w, P, P, C)
    return tf.reshape(cells, (-1, h * w, p * q * channels))  # (B, N, P*P*C)
