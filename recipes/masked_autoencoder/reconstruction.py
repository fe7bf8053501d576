"""Predictions of a masked autoencoder as images. B batch, H W pixels, h w patch grid, N patches, P patch side."""

import numpy as np
import tensorflow as tf

from keras_vit.images import normalize
from keras_vit.layers import ExtractPatches
from keras_vit.recipes.masked_autoencoder.batches import patch_statistics
from keras_vit.recipes.masked_autoencoder.masking import draw_masking
from keras_vit.recipes.masked_autoencoder.model import MaskedAutoencoderModel
from keras_vit.recipes.masked_patch.masking import MASK
from keras_vit.recipes.masked_patch.reconstruction import Reconstruction, assembled
from keras_vit.recipes.recipe import MaskedAutoencoder


def reconstruct(model: MaskedAutoencoderModel, pixels, recipe: MaskedAutoencoder, seed: int = 0) -> Reconstruction:
    """Masks images (B, H, W, 3) with pixels in [0, 255] as in training, and renders the model's predictions.

    With normalized targets, the prediction of a patch gets the mean and the deviation of its true pixels, which the
    model does not predict (as the demo of facebookresearch/mae). Where nothing is masked, it shows the image.
    """
    vit, data = model.vit, recipe.data
    masking = draw_masking((seed, 0), len(pixels), vit.grid[0] * vit.grid[1], recipe.masked_fraction)
    images = normalize(pixels, data.mean, data.std)
    values = model({"images": images, **masking._asdict()}, training=False)  # (B, M, P*P*3)
    patches = ExtractPatches(vit.patch_size, dtype="float32")(images)  # (B, N, P*P*3)
    if recipe.normalize_targets:
        mean, deviation = (
            tf.gather(part, masking.masked, axis=1, batch_dims=1) for part in patch_statistics(patches)
        )  # (B, M, 1)
        values = values * deviation + mean
    true = _colors(patches, data)  # (B, N, P*P, 3)
    predicted = true.copy()
    np.put_along_axis(predicted, masking.masked.numpy()[..., None, None], _colors(values, data), axis=1)
    masked = np.repeat(masking.source.numpy()[..., None] == MASK, patches.shape[-1], axis=-1)  # (B, N, P*P*3)
    true = assembled(true, vit.grid, vit.patch_size)  # (B, H, W, 3)
    return Reconstruction(
        inputs=true,
        masked=assembled(masked, vit.grid, vit.patch_size)[..., 0],
        predicted=assembled(predicted, vit.grid, vit.patch_size),
        targets=true,
    )


def _colors(values, data):
    """Normalized pixels of patches, (B, n, P * P * 3), as colors (B, n, P * P, 3) uint8."""
    values = np.asarray(values, "float32")
    values = values.reshape(*values.shape[:2], -1, 3) * np.float32(data.std) + np.float32(data.mean)  # (B, n, P*P, 3)
    return np.clip(np.round(values * 255), 0, 255).astype("uint8")
