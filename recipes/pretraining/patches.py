"""What both kinds of training without labels do with patches: cut them, share draws among hosts.

B batch, H W pixels, C channels, h w patch grid, N patches, P patch side.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_vit.images import as_size, patch_grid

MASK = -1  # instead of the index of a patch


def part_of(draws: NamedTuple, part: int, size: int) -> dict:
    """The rows of one host, `size` each, of draws for the global batch: tensors by their name."""
    return {name: value[part * size : (part + 1) * size] for name, value in draws._asdict().items()}


def extract_patches(images, patch_size):
    """`keras_vit.layers.ExtractPatches` in TensorFlow: (B, H, W, C), H and W static, to (B, N, P * P * C)."""
    height, width, channels = images.shape[1:]
    (p, q), (h, w) = as_size(patch_size, "patch_size"), patch_grid((height, width), patch_size)
    cells = tf.reshape(images, (-1, h, p, w, q, channels))
    cells = tf.transpose(cells, (0, 1, 3, 2, 4, 5))  # (B, h, w, P, P, C)
    return tf.reshape(cells, (-1, h * w, p * q * channels))  # (B, N, P*P*C)
