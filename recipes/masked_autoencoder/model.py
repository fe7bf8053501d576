"""The masked autoencoder (MAE, arXiv 2111.06377). B batch, N patches, V visible, M masked patches, P patch side.

D is the encoder's width, d the decoder's. Masks and targets are computed in tf.data: the shapes of a training step are
static, and training is plain `model.fit`.
"""

import math

import keras
from keras import ops

from keras_vit.layers import Encoder, SinCosPositions
from keras_vit.layers.tokens import take_tokens
from keras_vit.recipes.masked_patch.targets import MASK
from keras_vit.recipes.training.model import freeze_pooling

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
            math.prod(vit.patch_size) * 3,
            dtype=keras.backend.result_type(self.compute_dtype, "float32"),
            name="head",
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
    if vit.head or vit.pre_logits:
        raise ValueError(f"Expected a model without a head, but {vit.name} has one. Pass vit.with_head(0).")
    problems = {
        "axial=True": config.axial,
        "position_embedding='relative'": config.position_embedding == "relative",
        f"position_placement={config.position_placement!r}": bool(vit.block_positions),
        f"resnet_stages={config.resnet_stages}": vit.backbone is not None,
        "norm_after_pooling=True": config.norm_after_pooling,
        f"patch_dropout={config.patch_dropout}": bool(config.patch_dropout),
    }
    if found := [name for name, is_found in problems.items() if is_found]:
        raise ValueError(
            "A masked autoencoder encodes a part of the patches, each from its own pixels, adds positions once, and "
            f"normalizes the encoder's output. Expected a model without {', '.join(problems)}. Received: "
            f"{', '.join(found)} in {vit.name}"
        )
