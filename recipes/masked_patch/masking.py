"""Random corruption of patches, the paper's appendix B.1.2. B batch, N patches, M corrupted patches."""

from typing import NamedTuple

import tensorflow as tf


class Corruption(NamedTuple):
    """The corruption of a batch's patch embeddings.

    Attributes:
        corrupted: (B, M) int32, the indices of the corrupted patches, in random order.
        source: (B, N) int32, the index of the patch whose embedding each patch gets: `MASK` for the [mask] embedding,
            another patch for a replaced one, else the patch itself.
    """

    corrupted: tf.Tensor
    source: tf.Tensor


MASK = -1


def draw_corruption(
    seed,
    batch_size: int,
    num_patches: int,
    corrupted_fraction: float = 0.5,
    masked_fraction: float = 0.8,
    replaced_fraction: float = 0.1,
) -> Corruption:
    """Draws M = corrupted_fraction * N patches of every image; each is masked, replaced or unchanged, independently.

    Args:
        seed: (2,) integers, such as (seed of the run, step): equal seeds produce equal draws.
        batch_size, num_patches: B and N, at least 2.
        corrupted_fraction: Fraction of the patches that is corrupted, exact in every image (M is rounded, at least 1).
        masked_fraction: Probability that a corrupted patch gets the [mask] embedding.
        replaced_fraction: Probability that it gets the embedding of another random patch of the same image; else it is
            unchanged.
    """
    count = max(1, round(num_patches * corrupted_fraction))
    seeds = tf.random.split(tf.cast(seed, tf.int32), 3)
    order = tf.argsort(tf.random.stateless_uniform((batch_size, num_patches), seeds[0]), axis=1)
    corrupted = order[:, :count]  # (B, M)

    # One draw per patch: in [0, 1) for corrupted patches, 2 for all others.
    draw = tf.random.stateless_uniform((batch_size, count), seeds[1])
    draw = tf.pad(draw, ((0, 0), (0, num_patches - count)), constant_values=2.0)
    draw = tf.gather(draw, tf.argsort(order, axis=1), axis=1, batch_dims=1)  # (B, N)
    masked = draw < masked_fraction
    replaced = tf.logical_and(draw >= masked_fraction, draw < masked_fraction + replaced_fraction)

    own = tf.range(num_patches)[None]
    step = tf.random.stateless_uniform((batch_size, num_patches), seeds[2], 1, num_patches, tf.int32)
    other = tf.math.floormod(own + step, num_patches)  # any other patch
    return Corruption(corrupted, tf.where(masked, MASK, tf.where(replaced, other, own)))


def part_of(draws: NamedTuple, part: int, size: int) -> dict:
    """The rows of one host, `size` each, of draws for the global batch: tensors by their name."""
    return {name: value[part * size : (part + 1) * size] for name, value in draws._asdict().items()}
