"""The layers of a VisionTransformer, each built from its configuration; None for a layer that the model lacks."""

import keras

from keras_vit.layers.encoder import SEEDS_PER_BLOCK, Encoder
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.patches import PatchEmbedding
from keras_vit.layers.pooling import AttentionPooling, AveragePooling, TokenAndAveragePooling, TokenPooling
from keras_vit.layers.positions import PositionEmbedding, PositionEmbedding2D, SinCosPositions
from keras_vit.layers.resnet.backbone import ResNetBackbone, SmallImageResNet
from keras_vit.layers.tokens import ClassToken, LearnedTokens, PatchDropout
from keras_vit.models.config import ViTConfig

POSITIONS = {
    "learned_1d": PositionEmbedding,
    "learned_1d_and_rotary": PositionEmbedding,
    "learned_2d": PositionEmbedding2D,
    "sincos_2d": SinCosPositions,
}


def backbone(config: ViTConfig, dtype):
    stages = config.resnet_stages
    if stages is None:
        return None
    if config.resnet_form == "cifar":
        return SmallImageResNet(stages, dtype=dtype, name="backbone")
    return ResNetBackbone(stages, form=config.resnet_form, dtype=dtype, name="backbone")


def patch_embedding(config: ViTConfig, stride, dtype):
    """Patches of the feature map of a ResNet with this stride; 1 for patches of the image itself."""
    side = config.patch_size
    if any(pixels % stride for pixels in side):
        raise ValueError(
            f"A ResNet of stages {config.resnet_stages} has a stride of {stride} pixels, and `patch_size` must "
            f"be a multiple of it. Received: patch_size={side}"
        )
    cell = tuple(pixels // stride for pixels in side)
    return PatchEmbedding(config.width, cell, dtype=dtype, name="patch_embedding")


def tokens(config: ViTConfig, dtype):
    """Registers, distillation token and class token, in the order in which they are prepended."""
    registers = config.register_tokens
    return (
        LearnedTokens(registers, dtype=dtype, name="register_tokens") if registers else None,
        LearnedTokens(1, dtype=dtype, name="distillation_token") if config.distillation else None,
        ClassToken(dtype=dtype, name="class_token") if config.class_token else None,
    )


def positions(config: ViTConfig, dtype, name="positions"):
    if config.position_embedding not in POSITIONS:
        return None
    prefix = config.prefix_tokens if config.prefix_positions else 0
    return POSITIONS[config.position_embedding](config.grid, prefix, dtype=dtype, name=name)


def block_positions(config: ViTConfig, first, dtype):
    """Positions added before the second block, the third, ...; `first` are those of the stem."""
    again, placement = range(1, config.depth), config.position_placement
    if placement == "stem":
        return []
    return [first if placement == "shared" else positions(config, dtype, f"positions_{i}") for i in again]


def patch_dropout(config: ViTConfig, dtype):
    if not config.patch_dropout:
        return None
    # The encoder's blocks take seed + 1 + SEEDS_PER_BLOCK * i and a few above.
    seed = None if config.seed is None else config.seed + SEEDS_PER_BLOCK
    return PatchDropout(config.patch_dropout, config.prefix_tokens, seed, dtype=dtype, name="patch_dropout")


def encoder(config: ViTConfig, dtype):
    return Encoder(
        config.depth,
        config=config.block,
        stochastic_depth=config.stochastic_depth,
        final_norm=not config.norm_after_pooling,
        initial_norm=config.norm_before_encoder,
        axial_grid=config.grid if config.axial else None,
        prefix_tokens=config.prefix_tokens,
        remat=config.remat,
        seed=None if config.seed is None else config.seed + 1,
        dtype=dtype,
        name="encoder",
    )


def pooling(config: ViTConfig, dtype):
    kind, options = config.pooling, {"dtype": dtype, "name": "pooling"}
    skipped = 0 if config.pool_prefix_tokens else config.prefix_tokens
    if kind == "token":
        return TokenPooling(1 + int(config.distillation), **options)
    if kind in ("gap", "token_and_gap"):
        return (AveragePooling if kind == "gap" else TokenAndAveragePooling)(skipped, **options)
    if kind == "map":
        return AttentionPooling(config.num_heads, config.mlp_dim, config.gelu, config.epsilon, skipped, **options)
    return None


def pooled_norm(config: ViTConfig, dtype):
    return LayerNorm(config.epsilon, dtype=dtype, name="pooled_norm") if config.norm_after_pooling else None


def pre_logits(config: ViTConfig, dtype):
    units = config.representation_size
    if not units:
        return None
    options = {"kernel_initializer": "lecun_normal", "dtype": dtype, "name": "pre_logits"}
    return keras.layers.Dense(units, activation="tanh", **options)
