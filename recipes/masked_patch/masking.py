"""Which patches of a batch are corrupted, and how: the paper's appendix B.1.2. B batch, N patches, M corrupted."""

from typing import NamedTuple

import tensorflow as tf


class Corruption(NamedTuple):
    """What happens to a batch's patch embeddings.

    Attributes:
        corrupted: (B, M) int32, the numbers of the corrupted patches, in random order.
        source: (B, N) int32, the patch whose embedding each patch gets: `MASK` for the [mask] embedding, another's
            number for a replaced patch, else its own.
    """

    corrupted: tf.Tensor
    source: tf.Tensor


MASK = -1


def corrupted_count(num_patches: int, fraction: float) -> int:
    """M, the number of patches that a fraction means; at least one.

    Raises:
        ValueError: The fraction is not in (0, 1].
    """
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"`corrupted_fraction` must be above 0 and at most 1. Received: {fraction}")
    return max(1, round(num_patches * fraction))


def draw_corruption(
    seed, batch_size, num_patches, fraction=0.5, masked_fraction=0.8, replaced_fraction=0.1
) -> Corruption:
    """Draws M = fraction * N patches of every image; each is masked, replaced or kept on its own.

    Args:
        seed: (2,) integers, such as (seed of the run, step): the same seed gives the same draw.
        batch_size, num_patches: B and N.
        fraction: Share of the patches that is corrupted, exactly (rounded to whole patches).
        masked_fraction: Probability that a corrupted patch becomes the [mask] embedding.
        replaced_fraction: Probability that it becomes another random patch's embedding of the same image; else it is
            kept.

    Raises:
        ValueError: A fraction or share is out of range.
    """
    if masked_fraction < 0 or replaced_fraction < 0 or masked_fraction + replaced_fraction > 1:
        raise ValueError(
            "`masked_fraction` and `replaced_fraction` must not be negative and add up to 1 at most. "
            f"Received: {masked_fraction} and {replaced_fraction}"
        )
    if num_patches < 2:
        raise ValueError(f"Masked patches need at least two patches an image. Received: {num_patches}")
    count = corrupted_count(num_patches, fraction)
    seeds = tf.random.split(tf.cast(seed, tf.int32), 3)
    order = tf.argsort(tf.random.stateless_uniform((batch_size, num_patches), seeds[0]), axis=1)
    corrupted = order[:, :count]  # (B, M)

    # Scattered back to the patches' places: 2 where nothing happens, else a number in [0, 1) that decides.
    fate = tf.random.stateless_uniform((batch_size, count), seeds[1])
    fate = tf.pad(fate, ((0, 0), (0, num_patches - count)), constant_values=2.0)
    fate = tf.gather(fate, tf.argsort(order, axis=1), axis=1, batch_dims=1)  # (B, N)
    masked = fate < masked_fraction
    replaced = tf.logical_and(fate >= masked_fraction, fate < masked_fraction + replaced_fraction)

    own = tf.range(num_patches)[None]
    step = tf.random.stateless_uniform((batch_size, num_patches), seeds[2], 1, num_patches, tf.int32)
    other = tf.math.floormod(own + step, num_patches)  # any patch but its own
    return Corruption(corrupted, tf.where(masked, MASK, tf.where(replaced, other, own)))
