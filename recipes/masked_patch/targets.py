"""Prediction targets of patches, from pixels: appendix B.1.2. B batch, H W pixels, N patches, P patch side."""

import tensorflow as tf

from keras_vit.images import as_size
from keras_vit.recipes.data.patches import extract_patches

COLORS = 512  # classes: three channels at 3 bits
BINS = 8
REDUCED = 4  # side of the reduced patch of "downsampled_color", in cells


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
