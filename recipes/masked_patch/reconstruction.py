"""Predictions of a masked-patch model as images. B batch, H W pixels, h w patch grid, N patches, s side of a target."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.images import normalize
from keras_vit.recipes.masked_patch.model import MaskedPatchModel
from keras_vit.recipes.masked_patch.targets import MASK, color_of, draw_corruption, extract_patches, patch_targets
from keras_vit.recipes.recipe import MaskedPatch


class Reconstruction(NamedTuple):
    """Images of a masked-patch prediction, uint8.

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


def reconstruct(model: MaskedPatchModel, pixels, recipe: MaskedPatch, seed: int = 0) -> Reconstruction:
    """Corrupts images (B, H, W, 3) with pixels in [0, 255] as in training, and renders the model's predictions."""
    vit = model.vit
    batch, patches = len(pixels), vit.grid[0] * vit.grid[1]
    fractions = (recipe.corrupted_fraction, recipe.masked_fraction, recipe.replaced_fraction)
    corruption = draw_corruption((seed, 0), batch, patches, *fractions)
    predictions = model(
        {"images": normalize(pixels, recipe.data.mean, recipe.data.std), **corruption._asdict()}, training=False
    )
    values = predictions if recipe.target == "pixels" else tf.argmax(predictions, axis=-1, output_type=tf.int32)
    targets = patch_targets(pixels, vit.patch_size, recipe.target)  # (B, N, ...)

    true = _colors(targets, recipe.target)  # (B, N, s*s, 3)
    predicted = true.copy()
    np.put_along_axis(predicted, corruption.corrupted.numpy()[..., None, None], _colors(values, recipe.target), axis=1)
    extracted = extract_patches(tf.cast(pixels, tf.float32), vit.patch_size)  # (B, N, P*P*3)
    inputs = tf.gather(extracted, tf.maximum(corruption.source, 0), axis=1, batch_dims=1).numpy()
    masked = np.repeat(corruption.source.numpy()[..., None] == MASK, inputs.shape[-1], axis=-1)  # (B, N, P*P*3)
    return Reconstruction(
        inputs=assembled(inputs, vit.grid, vit.patch_size).astype("uint8"),
        masked=assembled(masked, vit.grid, vit.patch_size)[..., 0],
        predicted=assembled(predicted, vit.grid, _side(predicted, vit.patch_size)),
        targets=assembled(true, vit.grid, _side(true, vit.patch_size)),
    )


def _colors(values, target):
    """Targets or predictions of patches, (B, n, ...), as colors (B, n, s * s, 3) uint8."""
    if target == "pixels":
        values = np.clip(np.asarray(values) * 255, 0, 255).astype("uint8")
        return values.reshape(*values.shape[:2], -1, 3)
    colors = color_of(values).numpy()
    return colors.reshape(*colors.shape[:2], -1, 3)


def _side(colors, patch_size):
    """Height and width of a patch's target: 1 x 1, 4 x 4 or the size of the patch."""
    cells = colors.shape[2]
    return {1: (1, 1), patch_size[0] * patch_size[1]: patch_size}.get(cells, (4, 4))


def assembled(patches, grid, side):
    """(B, N, s * s * 3) or (B, N, s * s, 3) in the order of `ExtractPatches` -> (B, h * s, w * s, 3)."""
    (h, w), (p, q) = grid, side
    cells = patches.reshape(-1, h, w, p, q, 3).transpose(0, 1, 3, 2, 4, 5)  # (B, h, p, w, q, 3)
    return cells.reshape(-1, h * p, w * q, 3)
