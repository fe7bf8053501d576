"""Inputs and targets of a masked autoencoder, from pixels. B batch, H W pixels, N patches, M masked, P patch side.

Masks and targets are computed in tf.data from (seed, step), as for masked patches.
"""

import tensorflow as tf

from keras_vit.recipes.data.patches import extract_patches
from keras_vit.recipes.data.transforms import normalize_floats
from keras_vit.recipes.masked_autoencoder.masking import draw_masking
from keras_vit.recipes.masked_patch.masking import part_of
from keras_vit.recipes.recipe import MaskedAutoencoder

EPSILON = 1e-6  # added to the variance, as in models_mae.py


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
