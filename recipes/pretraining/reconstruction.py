"""Reconstructions of both kinds of training without labels: their predictions as images.

B batch, H W pixels, h w patch grid, N patches, M corrupted or masked ones, n any number of patches, P patch side.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.images import normalize
from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel, draw_masking, patch_statistics
from keras_vit.recipes.pretraining.masked_patch import BINS, MaskedPatchModel, draw_corruption, patch_targets
from keras_vit.recipes.pretraining.patches import MASK, extract_patches
from keras_vit.recipes.recipe import MaskedAutoencoder, MaskedPatch


class Reconstruction(NamedTuple):
    """Images of a prediction of masked patches, uint8.

    Attributes:
        inputs: (B, H, W, 3), the images with replaced patches.
        masked: (B, H, W) bool, the pixels of patches with the [mask] embedding.
        predicted: (B, h * s, w * s, 3), predictions of the corrupted patches, targets elsewhere.
        targets: (B, h * s, w * s, 3), the target of every patch.
    """

    inputs: np.ndarray
    masked: np.ndarray
    predicted: np.ndarray
    targets: np.ndarray


def reconstruct_corrupted(model: MaskedPatchModel, pixels, recipe: MaskedPatch, seed: int = 0) -> Reconstruction:
    """Corrupts images (B, H, W, 3) with pixels in [0, 255] as in training, and renders the model's predictions."""
    vit, target = model.vit, recipe.target
    fractions = (recipe.corrupted_fraction, recipe.masked_fraction, recipe.replaced_fraction)
    corruption = draw_corruption((seed, 0), len(pixels), vit.grid[0] * vit.grid[1], *fractions)
    images = normalize(pixels, recipe.data.mean, recipe.data.std)
    values = model({"images": images, **corruption._asdict()}, training=False)
    if target != "pixels":
        values = tf.argmax(values, axis=-1, output_type=tf.int32)
    true = _target_colors(patch_targets(pixels, vit.patch_size, target), target)  # (B, N, s*s, 3)
    extracted = extract_patches(tf.cast(pixels, tf.float32), vit.patch_size)  # (B, N, P*P*3)
    inputs = tf.gather(extracted, tf.maximum(corruption.source, 0), axis=1, batch_dims=1).numpy()
    return _rendered(vit, inputs, corruption.source, true, corruption.corrupted, _target_colors(values, target))


def reconstruct_masked(
    model: MaskedAutoencoderModel, pixels, recipe: MaskedAutoencoder, seed: int = 0
) -> Reconstruction:
    """Masks images (B, H, W, 3) with pixels in [0, 255] as in training, and renders the model's predictions.

    With normalized targets, the prediction of a patch gets the mean and the deviation of its true pixels, which the
    model does not predict (as the demo of facebookresearch/mae). Where nothing is masked, it shows the image.
    """
    vit, data = model.vit, recipe.data
    masking = draw_masking((seed, 0), len(pixels), vit.grid[0] * vit.grid[1], recipe.masked_fraction)
    images = normalize(pixels, data.mean, data.std)
    values = model({"images": images, **masking._asdict()}, training=False)  # (B, M, P*P*3)
    patches = extract_patches(images, vit.patch_size)  # (B, N, P*P*3)
    if recipe.normalize_targets:
        mean, deviation = (
            tf.gather(part, masking.masked, axis=1, batch_dims=1) for part in patch_statistics(patches)
        )  # (B, M, 1)
        values = values * deviation + mean
    true = _pixel_colors(patches, data)  # (B, N, P*P, 3)
    return _rendered(vit, true, masking.source, true, masking.masked, _pixel_colors(values, data))


def _rendered(vit, inputs, source, true, changed, colors) -> Reconstruction:
    """Images of colors (B, M, s * s, 3) in place of the true ones (B, N, s * s, 3) of the changed patches (B, M)."""
    predicted, patch_size = true.copy(), vit.patch_size
    np.put_along_axis(predicted, changed.numpy()[..., None, None], colors, axis=1)
    pixels = patch_size[0] * patch_size[1]
    side = {1: (1, 1), pixels: patch_size}.get(true.shape[2], (4, 4))  # of a patch's target
    masked = np.repeat(source.numpy()[..., None] == MASK, 3 * pixels, axis=-1)  # (B, N, P*P*3)
    return Reconstruction(
        inputs=_assembled(inputs, vit.grid, patch_size).astype("uint8"),
        masked=_assembled(masked, vit.grid, patch_size)[..., 0],
        predicted=_assembled(predicted, vit.grid, side),
        targets=_assembled(true, vit.grid, side),
    )


def _assembled(patches, grid, side):
    """(B, N, s * s * 3) or (B, N, s * s, 3) in the order of `ExtractPatches` -> (B, h * s, w * s, 3)."""
    (h, w), (p, q) = grid, side
    cells = patches.reshape(-1, h, w, p, q, 3).transpose(0, 1, 3, 2, 4, 5)  # (B, h, p, w, q, 3)
    return cells.reshape(-1, h * p, w * q, 3)


def _target_colors(values, target):
    """Targets or predictions of patches, (B, n, ...), as colors (B, n, s * s, 3) uint8."""
    if target == "pixels":
        values = np.clip(np.asarray(values) * 255, 0, 255).astype("uint8")
        return values.reshape(*values.shape[:2], -1, 3)
    colors = color_of(values).numpy()
    return colors.reshape(*colors.shape[:2], -1, 3)


def color_of(classes):
    """The center of each class's bins: (...,) integers in [0, 512) to (..., 3) uint8."""
    classes = tf.cast(classes, tf.int32)
    bins = tf.stack([classes // (BINS * BINS), classes // BINS % BINS, classes % BINS], axis=-1)
    return tf.cast(bins * (256 // BINS) + 128 // BINS, tf.uint8)


def _pixel_colors(values, data):
    """Normalized pixels of patches, (B, n, P * P * 3), as colors (B, n, P * P, 3) uint8."""
    values = np.asarray(values, "float32")
    values = values.reshape(*values.shape[:2], -1, 3) * np.float32(data.std) + np.float32(data.mean)  # (B, n, P*P, 3)
    return np.clip(np.round(values * 255), 0, 255).astype("uint8")
