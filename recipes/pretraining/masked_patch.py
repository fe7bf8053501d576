"""Masked-patch pre-training, the paper's appendix B.1.2: corruption, targets, model.

B batch, H W pixels, h w patch grid, N patches, M corrupted patches, P patch side, D width. Masks and targets are
computed in tf.data from (seed, step), whose graphs have no operations of Keras on JAX: the training step draws no
masks, its shapes are static, and training is plain `model.fit`.
"""

import math
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_vit.images import as_size
from keras_vit.layers.tokens import take_tokens
from keras_vit.recipes.data.transforms import normalize_floats
from keras_vit.recipes.pretraining.patches import MASK, extract_patches, part_of
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.model import freeze_pooling

__all__ = ["MaskedPatchModel", "masked_patch_batches", "masked_patch_loss"]
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


def patch_targets(pixels, patch_size, target: str):
    """Returns the target of every patch.

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


def output_shape(patch_size, target: str) -> tuple[int, ...]:
    """Shape of the prediction for one patch: classes last, or the patch's pixels."""
    height, width = as_size(patch_size, "patch_size")
    shapes = {
        "mean_color": (COLORS,),
        "downsampled_color": (REDUCED * REDUCED, COLORS),
        "pixels": (height * width * 3,),
    }
    return shapes[target]


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedPatchModel(keras.Model):
    """A VisionTransformer that predicts corrupted patches from their output tokens.

    Patch embeddings are corrupted before class token and position embeddings are added. The head starts at zeros.

    Input: {"images": (B, H, W, 3) float, scaled by the recipe's mean and std, "corrupted": (B, M) int32,
    "source": (B, N) int32}, see `Corruption`.

    Output: predictions for the corrupted patches, float32: (B, M, 512), (B, M, 16, 512) or (B, M, P * P * 3), see
    `patch_targets`.

    Args:
        vit: The `VisionTransformer` to train, without a head; its pooling is not used, and frozen.
        target: "mean_color", "downsampled_color" or "pixels".

    Raises:
        ValueError: The model has a head, which would not be trained, or `patch_dropout`.
    """

    def __init__(self, vit, target="mean_color", **kwargs):
        super().__init__(dtype=vit.dtype_policy, **kwargs)
        if vit.config.patch_dropout:
            raise ValueError(
                "Masked-patch prediction reads the output of every corrupted patch. Expected a model without "
                f"patch_dropout. Received: patch_dropout={vit.config.patch_dropout} in {vit.name}"
            )
        self.vit = vit
        freeze_pooling(vit)
        self.target = target
        self.patch_shape = output_shape(vit.patch_size, target)
        self.head = keras.layers.Dense(
            math.prod(self.patch_shape),
            kernel_initializer="zeros",
            dtype=keras.backend.result_type(self.compute_dtype, "float32"),
            name="head",
        )
        self.build()

    def build(self, input_shape=None):
        width = self.vit.config.width
        self.mask = self.add_weight(
            shape=(1, 1, width), initializer=keras.initializers.RandomNormal(stddev=0.02), name="mask"
        )
        self.head.build((None, None, width))

    def call(self, inputs, training=None):
        embeddings = self.corrupt(self.vit.embed(inputs["images"]), inputs["source"])
        corrupted = inputs["corrupted"] + self.vit.prefix_tokens
        chosen = self.vit.encode(embeddings, training=training, read=corrupted)  # (B, M, D)
        predictions = self.head(chosen)
        return ops.reshape(predictions, (-1, chosen.shape[1], *self.patch_shape))

    def corrupt(self, embeddings, source):
        """Replaces patch embeddings (B, N, D) by those of `source` (B, N), see `Corruption`."""
        moved = take_tokens(embeddings, source)  # (B, N, D)
        return ops.where(source[..., None] == MASK, ops.cast(self.mask, moved.dtype), moved)

    def get_config(self):
        return {**super().get_config(), "vit": keras.saving.serialize_keras_object(self.vit), "target": self.target}

    @classmethod
    def from_config(cls, config):
        vit = keras.saving.deserialize_keras_object(config.pop("vit"))
        config.pop("dtype", None)
        return cls(vit, **config)


def build(vit, recipe: MaskedPatch) -> tuple[MaskedPatchModel, dict]:
    """The model of a recipe around a `VisionTransformer`, and its loss and metrics as arguments of `compile`."""
    accuracy = keras.metrics.SparseCategoricalAccuracy(name="top1", dtype="float32")
    metrics = [accuracy] if recipe.target != "pixels" else []
    return MaskedPatchModel(vit, recipe.target), {"loss": masked_patch_loss(recipe.target), "metrics": metrics}


def masked_patch_loss(target: str):
    """The loss on corrupted patches: cross-entropy over color classes, or mean squared error of pixels."""
    if target == "pixels":
        return keras.losses.MeanSquaredError()
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def masked_patch_batches(
    pixels: tf.data.Dataset, patch_size, recipe: MaskedPatch, start_step: int = 0, host: tuple[int, int] = (0, 1)
) -> tf.data.Dataset:
    """Maps batches ((B, H, W, 3) in [0, 255], labels) to batches (inputs, targets) for `MaskedPatchModel.fit`.

    The corruption of batch i is drawn from (recipe.run.seed, i); the first batch here is `start_step`. `host` is the
    part of each batch that `pixels` contains, as for `training_pixels`.
    """

    def prepare(step, batch):
        images = batch[0]
        targets = patch_targets(images, patch_size, recipe.target)  # (B, N, ...)
        fractions = (recipe.corrupted_fraction, recipe.masked_fraction, recipe.replaced_fraction)
        seed = tf.stack([tf.constant(recipe.run.seed, tf.int64), step])
        # Drawn for the global batch, so that the result does not depend on the number of hosts.
        corruption = draw_corruption(seed, host[1] * images.shape[0], targets.shape[1], *fractions)
        own = part_of(corruption, host[0], images.shape[0])
        inputs = {"images": normalize_floats(images, recipe.data.mean, recipe.data.std), **own}
        return inputs, tf.gather(targets, own["corrupted"], axis=1, batch_dims=1)

    return pixels.enumerate(start_step).map(prepare, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
