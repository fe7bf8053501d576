"""Masked-patch prediction, the paper's appendix B.1.2. B batch, N patches, M corrupted patches, D width.

Masks and targets are computed in tf.data from (seed, step): the training step draws no masks, its shapes
are static, and training is plain `model.fit`.
"""

import math

import keras
import tensorflow as tf
from keras import ops

from keras_vit.layers.tokens import take_tokens
from keras_vit.recipes.data.transforms import normalize_floats
from keras_vit.recipes.masked_patch.targets import MASK, draw_corruption, output_shape, part_of, patch_targets
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.model import freeze_pooling


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
        if vit.head or vit.pre_logits:
            raise ValueError(f"Expected a model without a head, but {vit.name} has one. Pass vit.with_head(0).")
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
