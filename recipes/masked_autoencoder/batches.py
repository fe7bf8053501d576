"""From pixels to inputs and targets of a masked autoencoder, and from its predictions to pixels.

B batch, H W pixels, N patches, V visible, M masked patches, P patch side. Masks (section 3 of arXiv 2111.06377) and
targets are computed in tf.data from (seed, step), as for masked patches.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.images import normalize
from keras_vit.recipes.data.transforms import normalize_floats
from keras_vit.recipes.masked_autoencoder.model import MaskedAutoencoderModel
from keras_vit.recipes.masked_patch.reconstruction import Reconstruction, assembled
from keras_vit.recipes.masked_patch.targets import MASK, extract_patches, part_of
from keras_vit.recipes.recipe import MaskedAutoencoder

EPSILON = 1e-6  # added to the variance, as in models_mae.py


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


def masked_autoencoder_batches(
    pixels: tf.data.Dataset,
    patch_size,
    recipe: MaskedAutoencoder,
    start_step: int = 0,
    host: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Maps batches ((B, H, W, 3) in [0, 255], labels) to batches (inputs, targets) for `MaskedAutoencoderModel.fit`.

    Inputs are {"images": (B, H, W, 3) float32, "visible", "masked", "source"}, see `Masking`; targets are (B, M,
    P * P * 3) float32, see `pixel_targets`. The masks of batch i are drawn from (recipe.run.seed, i); the first batch
    here is `start_step`. `host` is the part of each batch that `pixels` contains, as for `training_pixels`.
    """

    def prepare(step, batch):
        images = normalize_floats(batch[0], recipe.data.mean, recipe.data.std)
        targets = pixel_targets(images, patch_size, recipe.normalize_targets)  # (B, N, P*P*3)
        seed = tf.stack([tf.constant(recipe.run.seed, tf.int64), step])
        # Drawn for the global batch, so that the result does not depend on the number of hosts.
        masking = draw_masking(seed, host[1] * images.shape[0], targets.shape[1], recipe.masked_fraction)
        own = part_of(masking, host[0], images.shape[0])
        return {"images": images, **own}, tf.gather(targets, own["masked"], axis=1, batch_dims=1)

    return pixels.enumerate(start_step).map(prepare, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def pixel_targets(images, patch_size, normalize_targets: bool):
    """The pixels of every patch, (B, N, P * P * 3) float32 in the order of `ExtractPatches`.

    With `normalize_targets`, minus the mean of the patch and divided by the square root of its unbiased variance plus
    1e-6, over all pixels and channels (facebookresearch/mae, models_mae.py, forward_loss).

    Args:
        images: (B, H, W, 3) float, as the model receives them.
        patch_size: P, pixels, or (height, width).
    """
    patches = extract_patches(tf.cast(images, tf.float32), patch_size)  # (B, N, P*P*3)
    if not normalize_targets:
        return patches
    mean, deviation = patch_statistics(patches)
    return (patches - mean) / deviation


def patch_statistics(patches):
    """Mean and deviation of patches (B, N, P * P * 3), see `pixel_targets`: (B, N, 1) each."""
    mean = tf.reduce_mean(patches, axis=-1, keepdims=True)  # (B, N, 1)
    squares = tf.reduce_sum(tf.square(patches - mean), axis=-1, keepdims=True)  # (B, N, 1)
    return mean, tf.sqrt(squares / (patches.shape[-1] - 1) + EPSILON)


def reconstruct(model: MaskedAutoencoderModel, pixels, recipe: MaskedAutoencoder, seed: int = 0) -> Reconstruction:
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
