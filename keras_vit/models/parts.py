"""The parts of a VisionTransformer, each made from the model's arguments as `complete_arguments` returns them.

A part that the arguments leave out is None.
"""

import keras

from keras_vit.images import patch_grid
from keras_vit.integers import is_whole
from keras_vit.layers.encoder import Encoder
from keras_vit.layers.patches import PatchEmbedding
from keras_vit.layers.pooling import AttentionPooling, AveragePooling, TokenPooling
from keras_vit.layers.positions import PositionEmbedding
from keras_vit.layers.positions_2d import PositionEmbedding2D, SinCosPositions
from keras_vit.layers.resnet.backbone import ResNetBackbone
from keras_vit.layers.tokens import ClassToken, LearnedTokens

POSITIONS = {"learned_1d": PositionEmbedding, "learned_2d": PositionEmbedding2D, "sincos_2d": SinCosPositions}


def prefix_tokens(arguments):
    """Tokens before the patches: class token, distillation token, registers."""
    return int(arguments["class_token"]) + int(arguments["distillation"]) + arguments["register_tokens"]


def backbone(arguments, dtype):
    stages = arguments["resnet_stages"]
    if stages is None:
        return None
    return ResNetBackbone(stages, form=arguments["resnet_form"], dtype=dtype, name="backbone")


def patch_embedding(arguments, stride, dtype):
    """Its patches lie in the feature map of a ResNet of this stride; 1 for the image itself."""
    side = arguments["patch_size"]
    if any(pixels % stride for pixels in side):
        raise ValueError(
            f"A ResNet of stages {arguments['resnet_stages']} has a stride of {stride} pixels, and `patch_size` must "
            f"be a multiple of it. Received: patch_size={side}"
        )
    cell = tuple(pixels // stride for pixels in side)
    return PatchEmbedding(arguments["width"], cell, dtype=dtype, name="patch_embedding")


def tokens(arguments, dtype):
    """Layers of the registers, the distillation token and the class token: each is put before the others."""
    registers = arguments["register_tokens"]
    return (
        LearnedTokens(registers, dtype=dtype, name="register_tokens") if registers else None,
        LearnedTokens(1, dtype=dtype, name="distillation_token") if arguments["distillation"] else None,
        ClassToken(dtype=dtype, name="class_token") if arguments["class_token"] else None,
    )


def positions(arguments, dtype, name="positions"):
    if arguments["position_embedding"] not in POSITIONS:
        return None
    grid = patch_grid(arguments["image_size"], arguments["patch_size"])
    prefix = prefix_tokens(arguments) if arguments["prefix_positions"] else 0
    return POSITIONS[arguments["position_embedding"]](grid, prefix, dtype=dtype, name=name)


def block_positions(arguments, first, dtype):
    """Positions that are added again before the second block, the third, ...; `first` are those of the stem."""
    again, placement = range(1, arguments["depth"]), arguments["position_placement"]
    if placement == "stem":
        return []
    return [first if placement == "shared" else positions(arguments, dtype, f"positions_{i}") for i in again]


def encoder(arguments, dtype):
    shared = ("depth", "num_heads", "mlp_dim", "dropout", "attention_dropout", "stochastic_depth", "gelu", "epsilon")
    seed = arguments["seed"]
    return Encoder(
        **{name: arguments[name] for name in (*shared, "layer_scale", "qk_norm", "remat")},
        relative_positions=arguments["position_embedding"] == "relative",
        final_norm=not arguments["norm_after_pooling"],
        axial_grid=patch_grid(arguments["image_size"], arguments["patch_size"]) if arguments["axial"] else None,
        prefix_tokens=prefix_tokens(arguments),
        seed=None if seed is None else seed + 1,
        dtype=dtype,
        name="encoder",
    )


def pooling(arguments, dtype):
    kind, options = arguments["pooling"], {"dtype": dtype, "name": "pooling"}
    if kind == "token":
        return TokenPooling(1 + int(arguments["distillation"]), **options)
    if kind == "gap":
        return AveragePooling(prefix_tokens(arguments), **options)
    if kind == "map":
        names = ("num_heads", "mlp_dim", "gelu", "epsilon")
        return AttentionPooling(*(arguments[name] for name in names), **options)
    return None


def pre_logits(arguments, dtype):
    units = arguments["representation_size"]
    if not units:
        return None
    options = {"kernel_initializer": "lecun_normal", "dtype": dtype, "name": "pre_logits"}
    return keras.layers.Dense(units, activation="tanh", **options)


def head(arguments, dtype, name="head"):
    classes = arguments["num_classes"]
    if not is_whole(classes, least=0):
        raise ValueError(f"`num_classes` must be an integer, 0 for no head. Received: {classes!r}")
    if not classes:
        return None
    precise = keras.backend.result_type(dtype.compute_dtype, "float32")
    return keras.layers.Dense(classes, kernel_initializer="zeros", dtype=precise, name=name)
