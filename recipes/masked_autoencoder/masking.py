"""Random masking of patches, section 3 of MAE (arXiv 2111.06377). B batch, N patches, V visible, M masked patches."""

from typing import NamedTuple

import tensorflow as tf

from keras_vit.recipes.masked_patch.masking import MASK


class Masking(NamedTuple):
    """The visible and the masked patches of a batch's images.

    Attributes:
        visible: (B, V) int32, the indices of the visible patches, in random order.
        masked: (B, M) int32, the indices of the others, in random order.
        source: (B, N) int32, the position of each patch in `visible`, `MASK` for a masked one.
    """

    visible: tf.Tensor
    masked: tf.Tensor
    source: tf.Tensor


def draw_masking(seed, batch_size: int, num_patches: int, masked_fraction: float = 0.75) -> Masking:
    """Draws the M = masked_fraction * N (rounded) masked patches of every image, uniformly.

    Args:
        seed: (2,) integers, such as (seed of the run, step): equal seeds produce equal draws.
        batch_size, num_patches: B and N, at least 2.
        masked_fraction: In (0, 1). At least one patch is masked and one visible.
    """
    noise = tf.random.stateless_uniform((batch_size, num_patches), tf.cast(seed, tf.int32))
    return masking_of(noise, masked_fraction)


def masking_of(noise, masked_fraction: float) -> Masking:
    """Masks the patches whose noise, (B, N), is largest, as facebookresearch/mae (models_mae.py, random_masking)."""
    num_patches = noise.shape[1]
    num_visible = num_patches - min(max(1, round(num_patches * masked_fraction)), num_patches - 1)
    order = tf.argsort(noise, axis=1)  # (B, N)
    position = tf.argsort(order, axis=1)  # (B, N)
    source = tf.where(position < num_visible, position, MASK)
    return Masking(order[:, :num_visible], order[:, num_visible:], source)
