"""Corruption and prediction targets of patches, from pixels: appendix B.1.2 of the paper.

B batch, H W pixels, N patches, M corrupted patches, P patch side. All of it runs in tf.data, whose graphs have no
operations of Keras on JAX.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_vit.images import as_size, patch_grid

MASK = -1
COLORS = 512  # classes: three channels at 3 bits
BINS = 8
REDUCED = 4  # side of the reduced patch of "downsampled_color", in cells


class Corruption(NamedTuple):
    """The corruption of a batch's patch embeddings.

    Attributes:
        corrupted: (B, M) int32, the indices of the corrupted patches, in random order.
        source: (B, N) int32, the index of the patch whose embedding each patch gets: `MASK` for the [mask] embedding,
            another patch for a replaced one, else the patch itself.
    """

    corrupted: tf.Tensor
    source: tf.Tensor


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


def patch_targets(pixels, patch_size, target: str):
    """Returns the target of every patch.

    Args:
        pixels: (B, H, W, 3) in [0, 255], not normalized.
        patch_size: P, pixels.
        target: "mean_color", "downsampled_color" or "pixels".

    Returns:
        "mean_color": (B, N) int32 in [0, 512), the mean color at 3 bits per channel: red * 64 + green * 8 + blue. The
        paper does not specify the 8 bins; here they are equal, 32 levels each.
        "downsampled_color": (B, N, 16) int32, the same for each of 4 x 4 cells, row by row.
        "pixels": (B, N, P * P * 3) float32 in [0, 1], in the order of `ExtractPatches`.
    """
    patches = extract_patches(tf.cast(pixels, tf.float32), patch_size)  # (B, N, P*P*3)
    if target == "pixels":
        return patches / 255.0
    height, width = as_size(patch_size, "patch_size")
    count = patches.shape[1]
    if target == "mean_color":
        return quantize(tf.reduce_mean(tf.reshape(patches, (-1, count, height * width, 3)), axis=2))  # (B, N)
    cells = tf.reshape(patches, (-1, height, width, 3))  # (B*N, P, P, 3)
    cells = tf.image.resize(cells, (REDUCED, REDUCED), method="area")  # (B*N, 4, 4, 3)
    return quantize(tf.reshape(cells, (-1, count, REDUCED * REDUCED, 3)))  # (B, N, 16)


def quantize(colors):
    """(..., 3) colors in [0, 255] to (...,) int32 classes in [0, 512)."""
    bins = tf.cast(tf.clip_by_value(tf.floor(colors * (BINS / 256)), 0, BINS - 1), tf.int32)  # (..., 3)
    return bins[..., 0] * BINS * BINS + bins[..., 1] * BINS + bins[..., 2]


def color_of(classes):
    """The center of each class's bins: (...,) integers in [0, 512) to (..., 3) uint8."""
    classes = tf.cast(classes, tf.int32)
    bins = tf.stack([classes // (BINS * BINS), classes // BINS % BINS, classes % BINS], axis=-1)
    return tf.cast(bins * (256 // BINS) + 128 // BINS, tf.uint8)


def output_shape(patch_size, target: str) -> tuple[int, ...]:
    """Shape of the prediction for one patch: classes last, or the patch's pixels."""
    height, width = as_size(patch_size, "patch_size")
    shapes = {
        "mean_color": (COLORS,),
        "downsampled_color": (REDUCED * REDUCED, COLORS),
        "pixels": (height * width * 3,),
    }
    return shapes[target]


def extract_patches(images, patch_size):
    """`keras_vit.layers.ExtractPatches` in TensorFlow: (B, H, W, C), H and W static, to (B, N, P * P * C)."""
    height, width, channels = images.shape[1:]
    (p, q), (h, w) = as_size(patch_size, "patch_size"), patch_grid((height, width), patch_size)
    cells = tf.reshape(images, (-1, h, p, w, q, channels))
    cells = tf.transpose(cells, (0, 1, 3, 2, 4, 5))  # (B, h, w, P, P, C)
    return tf.reshape(cells, (-1, h * w, p * q * channels))  # (B, N, P*P*C)
