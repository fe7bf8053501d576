"""The masked autoencoder (MAE, arXiv 2111.06377): model, masks (section 3), targets.

B batch, H W pixels, N patches, V visible, M masked patches, P patch side; D is the encoder's width, d the decoder's.
Masks and targets are computed in tf.data from (seed, step), as for masked patches: the shapes of a training step are
static, and training is plain `model.fit`.
"""

import math
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_vit.layers import Encoder, SinCosPositions
from keras_vit.layers.tokens import take_tokens
from keras_vit.recipes.data.transforms import normalize_floats
from keras_vit.recipes.pretraining.patches import MASK, extract_patches, part_of
from keras_vit.recipes.recipe import MaskedAutoencoder
from keras_vit.recipes.training.model import freeze_pooling

__all__ = ["MaskedAutoencoderModel"]
MLP_RATIO = 4


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedAutoencoderModel(keras.Model):
    """A VisionTransformer that encodes the visible patches, and a small decoder that predicts the masked ones.

    As facebookresearch/mae (models_mae.py), with these differences: the fixed positions are big_vision's, whose
    frequencies are temperature ** (-i / (d / 4 - 1)) where MAE has temperature ** (-i / (d / 4)); the encoder's tokens
    and positions are those of `vit`; GELU and epsilon of the decoder are the encoder's. Class, distillation and
    register tokens are always visible, also to the decoder. The decoder recomputes what `vit` does in all of its
    blocks, see `remat` of `ViTConfig`.

    Input: {"images": (B, H, W, 3) float, scaled by the recipe's mean and std, "visible": (B, V) int32, "masked":
    (B, M) int32, "source": (B, N) int32}, see `Masking`.

    Output: predictions of the masked patches, (B, M, P * P * 3) float32 in the order of `ExtractPatches`.

    Args:
        vit: The `VisionTransformer` to train, without a head; its pooling is not used, and frozen.
        decoder_depth, decoder_width, decoder_heads: Blocks, width and attention heads of the decoder.
        normalize_targets: Whether it is trained on normalized patches, see `MaskedAutoencoder`; changes no output.

    Raises:
        ValueError: The model has a head, which would not be trained; its blocks or positions require the grid of all
            patches; or its patches are embedded from the pixels of others. The heads do not divide the width, or the
            width is not a multiple of 4.
    """

    def __init__(self, vit, decoder_depth=8, decoder_width=512, decoder_heads=16, normalize_targets=True, **kwargs):
        super().__init__(dtype=vit.dtype_policy, **kwargs)
        _check_encoder(vit)
        self.vit = vit
        freeze_pooling(vit)
        self.decoder_depth, self.decoder_width, self.decoder_heads = decoder_depth, decoder_width, decoder_heads
        self.normalize_targets = normalize_targets
        config, dtype = vit.config, self.dtype_policy
        self.decoder_embedding = keras.layers.Dense(decoder_width, dtype=dtype, name="decoder_embedding")
        self.decoder_positions = SinCosPositions(vit.grid, vit.prefix_tokens, dtype=dtype, name="decoder_positions")
        self.decoder = Encoder(
            decoder_depth,
            num_heads=decoder_heads,
            mlp_dim=MLP_RATIO * decoder_width,
            gelu=config.gelu,
            epsilon=config.epsilon,
            remat=config.remat if isinstance(config.remat, str) else None,
            dtype=dtype,
            name="decoder",
        )
        self.head = keras.layers.Dense(
            math.prod(vit.patch_size) * 3, dtype=keras.backend.result_type(self.compute_dtype, "float32"), name="head"
        )
        self.build()

    def build(self, input_shape=None):
        width, tokens = self.decoder_width, self.vit.prefix_tokens + math.prod(self.vit.grid)
        self.mask = self.add_weight(
            shape=(1, 1, width), initializer=keras.initializers.RandomNormal(stddev=0.02), name="mask"
        )
        self.decoder_embedding.build((None, None, self.vit.config.width))
        self.decoder_positions.build((None, tokens, width))
        self.decoder.build((None, tokens, width))
        self.head.build((None, None, width))

    def call(self, inputs, training=None):
        encoded = self.encode(inputs["images"], inputs["visible"], training)  # (B, prefix + V, D)
        tokens = self.decoder_positions(self.restore(self.decoder_embedding(encoded), inputs["source"]))
        masked = inputs["masked"] + self.vit.prefix_tokens
        return self.head(self.decoder(tokens, training=training, read=masked))  # (B, M, P*P*3)

    def encode(self, images, visible, training=None):
        """Encodes prefix tokens and visible patches only: (B, H, W, 3), (B, V) -> (B, prefix_tokens + V, D)."""
        vit = self.vit
        tokens = vit.add_tokens(vit.embed(images), training=training)  # (B, prefix + N, D)
        prefix, patches = tokens[:, : vit.prefix_tokens], tokens[:, vit.prefix_tokens :]
        seen = ops.concatenate([prefix, take_tokens(patches, visible)], axis=1)  # (B, prefix + V, D)
        return vit.encoder(seen, training=training)

    def restore(self, tokens, source):
        """Prefix tokens and visible patches in order, with mask tokens: (B, prefix + V, d) -> (B, prefix + N, d)."""
        prefix, visible = tokens[:, : self.vit.prefix_tokens], tokens[:, self.vit.prefix_tokens :]
        moved = take_tokens(visible, source)  # (B, N, d)
        patches = ops.where(source[..., None] == MASK, ops.cast(self.mask, moved.dtype), moved)
        return ops.concatenate([prefix, patches], axis=1)  # (B, prefix + N, d)

    def get_config(self):
        names = ("decoder_depth", "decoder_width", "decoder_heads", "normalize_targets")
        own = {name: getattr(self, name) for name in names}
        return {**super().get_config(), "vit": keras.saving.serialize_keras_object(self.vit), **own}

    @classmethod
    def from_config(cls, config):
        vit = keras.saving.deserialize_keras_object(config.pop("vit"))
        config.pop("dtype", None)
        return cls(vit, **config)


def _check_encoder(vit):
    """Raises ValueError for a `VisionTransformer` that cannot encode a part of the patches."""
    config = vit.config
    problems = {
        "axial=True": config.axial,
        "position_embedding='relative'": config.position_embedding == "relative",
        "rotary positions": config.is_rotary,
        f"position_placement={config.position_placement!r}": bool(vit.block_positions),
        f"resnet_stages={config.resnet_stages}": vit.backbone is not None,
        "norm_after_pooling=True": config.norm_after_pooling,
        f"patch_dropout={config.patch_dropout}": bool(config.patch_dropout),
    }
    if present := [name for name, is_present in problems.items() if is_present]:
        raise ValueError(
            "A masked autoencoder encodes a part of the patches, each from its own pixels, adds positions once, and "
            f"normalizes the encoder's output. Expected a model without {', '.join(problems)}. Received: "
            f"{', '.join(present)} in {vit.name}"
        )


def build(vit, recipe: MaskedAutoencoder) -> tuple[MaskedAutoencoderModel, dict]:
    """The model of a recipe around a `VisionTransformer`, and its loss and metrics as arguments of `compile`."""
    sizes = recipe.decoder_depth, recipe.decoder_width, recipe.decoder_heads
    model = MaskedAutoencoderModel(vit, *sizes, recipe.normalize_targets)
    return model, {"loss": keras.losses.MeanSquaredError(), "metrics": []}


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
    pixels: tf.data.Dataset, patch_size, recipe: MaskedAutoencoder, start_step: int = 0, host: tuple[int, int] = (0, 1)
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
