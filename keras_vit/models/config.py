"""The configuration of a VisionTransformer: its fields, their defaults, and which of them exclude each other."""

from dataclasses import dataclass, fields
from numbers import Real

import numpy as np

from keras_vit.class_names import names_of_outputs
from keras_vit.images import as_size, is_integer, patch_grid
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.layers.config import BlockConfig, set_fields
from keras_vit.layers.pooling import POOLINGS
from keras_vit.layers.rotary import COORDINATES

CHOICES = {
    "pooling": POOLINGS,
    "position_embedding": (
        "learned_1d",
        "learned_2d",
        "relative",
        "sincos_2d",
        "rotary",
        "learned_1d_and_rotary",
        "none",
    ),
    "position_placement": ("stem", "every_layer", "shared"),
    "resnet_form": ("v1", "timm", "cifar"),  # the map of form "paper" requires a normalization that only BiT adds
}


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """The keyword arguments of a `VisionTransformer`, normalized: sizes are (height, width), sequences are tuples.

    Args:
        image_size: Pixels, one number or (height, width).
        channels: Channels of the images: 3 for RGB, 1 for gray, or another number, whose images are arrays.
        patch_size: Pixels, one number or (height, width); must divide the image. With `resnet_stages` it is still
            measured in the image, and must be a multiple of the ResNet's stride.
        depth, width, mlp_dim, num_heads: The shape of the encoder, see `keras_vit.variants`.
        num_classes: Outputs of the head, whose initial weights are zeros; 0 for no head.
        pooling: "token" (the class token), "gap" (mean of the patches), "token_and_gap" (both, one after the other, as
            DINOv2's linear heads), "map" (attention), or "none" (all tokens).
        pool_prefix_tokens: Whether "gap" and "map" also read class and register tokens, timm's `pool_include_prefix`;
            by default "map" does and "gap" does not.
        class_token: Whether there is a class token; by default not with "gap" and "map".
        distillation: Whether there are DeiT's distillation token and its head (arXiv 2012.12877): the model's output is
            the mean of the two heads, and `both_heads` returns each.
        register_tokens: Number of registers (arXiv 2309.16588): learnable tokens before the patches whose output is
            not used.
        representation_size: Width of a hidden tanh layer before the head, as in the paper's pre-training; None to
            omit it.
        position_embedding: "learned_1d", "learned_2d", "relative", "none" (appendix D.4), "sincos_2d", "rotary"
            (DINOv3) or "learned_1d_and_rotary" (EVA-02).
        rotary_theta, rotary_coordinates: `theta` and `coordinates` of `RotaryPositions`, for rotary positions.
        position_placement: "stem" (once, before the first block), "every_layer" (before each block, separate
            embeddings) or "shared" (before each block, the same embeddings).
        prefix_positions: Whether class, distillation and register tokens have positions too (the paper), or only
            patches (big_vision, timm's `no_embed_class`).
        resnet_stages: Units in each stage of a ResNet before the patches (hybrid, section 3.1), such as (3, 4, 9); ()
            for its root only, None for no ResNet.
        resnet_form: Form of that ResNet: "v1" or "timm", see `ResNetBackbone`, or "cifar" for small images, see
            `SmallImageResNet`.
        axial: Whether blocks attend along rows, then columns (appendix D.6), see `AxialBlock`.
        dropout: Rate after the positions and in the blocks, see `BlockConfig`.
        attention_dropout: Rate on the attention weights.
        stochastic_depth: Rate of the last block's residual branches, growing linearly from 0 at the first; or a
            sequence with a rate for each block (DeiT III: the same in all).
        patch_dropout: Fraction of the patches that is dropped in training, see `PatchDropout`; 0.5 halves the
            tokens, and with them about time and memory of a step.
        gelu: "tanh" (the paper's code), "erf" (ports to PyTorch) or "quick" (OpenAI's CLIP), see `Mlp`.
        swiglu: Whether the MLPs of the blocks are gated (DINOv2's g/14), see `Mlp`.
        epsilon: Epsilon of the layer normalizations.
        layer_scale: Initial value of learnable factors on the residual branches (arXiv 2103.17239); None disables it.
        qk_norm: Whether queries and keys are normalized (arXiv 2302.05442).
        norm_before_encoder: Whether tokens are also normalized before the first block (CLIP, timm's `pre_norm`).
        norm_after_pooling: Whether the last normalization comes after pooling (timm's `fc_norm`), not before.
        remat: What the backward pass of a training step recomputes to save memory: None, "mlp", "attention", "block",
            or a sequence of these, one for each block; see `EncoderBlock`. The numbers are the same.
        preprocessing: How `preprocess` prepares images: a `Preprocessing`, some of its fields, or "imagenet", "clip" or
            "half" for mean and standard deviation. By default, which is then said to be assumed, images are resized to
            the model's size, whatever their aspect ratio, and scaled to [-1, 1].
        seed: Seed of all dropout.
        class_names: One name per class, in the order of the outputs; None if they are unknown.
        multi_label: Whether an image may have several classes, each with a sigmoid of its own; changes no output, only
            the probabilities of `classify` and of exported files, and evaluations.

        projection: Whether the head's outputs are no classes: a projection to the space that images share with texts,
            as CLIP's, or the values of a regression; changes no output.

    Raises:
        ValueError: A patch that does not divide the image, an unknown choice, a number out of range, or arguments that
            exclude each other.
    """

    image_size: tuple[int, int]
    patch_size: tuple[int, int]
    depth: int
    width: int
    mlp_dim: int
    num_heads: int
    num_classes: int = 1000
    pooling: str = "token"
    pool_prefix_tokens: bool = None  # type: ignore[assignment]
    class_token: bool = None  # type: ignore[assignment]
    distillation: bool = False
    register_tokens: int = 0
    representation_size: int | None = None
    position_embedding: str = "learned_1d"
    rotary_theta: float = 100.0
    rotary_coordinates: str | tuple[int, int] = "centers"
    position_placement: str = "stem"
    prefix_positions: bool = True
    resnet_stages: tuple[int, ...] | None = None
    resnet_form: str = "v1"
    axial: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0
    stochastic_depth: float | tuple[float, ...] = 0.0
    patch_dropout: float = 0.0
    gelu: str = "tanh"
    swiglu: bool = False
    epsilon: float = 1e-6
    layer_scale: float | None = None
    qk_norm: bool = False
    norm_before_encoder: bool = False
    norm_after_pooling: bool = False
    remat: str | tuple[str | None, ...] | None = None
    channels: int = 3
    preprocessing: Preprocessing = None  # type: ignore[assignment]
    seed: int | None = None
    class_names: tuple[str, ...] | None = None
    multi_label: bool = False
    projection: bool = False

    def __post_init__(self):
        size = as_size(self.image_size)
        normalized = {
            "image_size": size,
            "patch_size": as_size(self.patch_size, "patch_size"),
            "pool_prefix_tokens": self.pooling == "map" if self.pool_prefix_tokens is None else self.pool_prefix_tokens,
            "class_token": self.pooling not in ("gap", "map") if self.class_token is None else self.class_token,
            "resnet_stages": None if self.resnet_stages is None else tuple(self.resnet_stages),
            "rotary_coordinates": _tuple_if_list(self.rotary_coordinates),
            "remat": _tuple_if_list(self.remat),
            "stochastic_depth": _tuple_if_list(self.stochastic_depth),
            "preprocessing": Preprocessing.from_argument(self.preprocessing, size),
        }
        set_fields(self, **vars(self) | normalized)
        check_numbers_and_choices(self)
        check_exclusions(self)
        set_fields(self, preprocessing=self.preprocessing.of_channels(self.channels))
        set_fields(self, class_names=names_of_outputs(self.class_names, self.num_classes))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return patch_grid(self.image_size, self.patch_size)

    @property
    def prefix_tokens(self) -> int:
        """Number of tokens before the patches: class token, distillation token, registers."""
        return int(self.class_token) + int(self.distillation) + self.register_tokens

    @property
    def is_rotary(self) -> bool:
        """Whether queries and keys are rotated."""
        return "rotary" in self.position_embedding

    @property
    def block(self) -> BlockConfig:
        """The configuration that all blocks of the encoder share."""
        shared = {field.name: getattr(self, field.name) for field in fields(BlockConfig) if hasattr(self, field.name)}
        rotary = {
            "grid": self.grid,
            "prefix_tokens": self.prefix_tokens,
            "theta": self.rotary_theta,
            "coordinates": self.rotary_coordinates,
        }
        return BlockConfig(
            **shared,
            relative_positions=self.position_embedding == "relative",
            rotary_positions=rotary if self.is_rotary else None,
        )


def _tuple_if_list(value):
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return tuple(value) if isinstance(value, list) else value


def check_num_classes(num_classes):
    """Raises a ValueError unless this is an integer of at least 0."""
    if not is_integer(num_classes, minimum=0):
        raise ValueError(f"`num_classes` must be an integer, 0 for no head. Received: {num_classes!r}")


def check_numbers_and_choices(config: ViTConfig):
    """Raises a ValueError for numbers that are not integers or out of range, and unknown choices."""
    for name, known in CHOICES.items():
        if getattr(config, name) not in known:
            raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {getattr(config, name)!r}")
    if not is_integer(config.depth):
        raise ValueError(f"`depth` must be a positive integer of blocks. Received: {config.depth!r}")
    if not is_integer(config.channels):
        raise ValueError(f"`channels` must be a positive integer: 3 for RGB, 1 for gray. Received: {config.channels!r}")
    if not is_integer(config.register_tokens, minimum=0):
        raise ValueError(f"`register_tokens` must be an integer, 0 for none. Received: {config.register_tokens!r}")
    check_num_classes(config.num_classes)
    for name in ("dropout", "attention_dropout", "patch_dropout"):
        rate = getattr(config, name)
        if not isinstance(rate, Real) or not 0 <= float(rate) < 1:
            raise ValueError(f"`{name}` must be a rate of at least 0 and below 1. Received: {rate!r}")
    if not isinstance(config.epsilon, Real) or not 0 < config.epsilon < 1:
        raise ValueError(f"`epsilon` must be a number above 0, such as 1e-6. Received: {config.epsilon!r}")
    check_rotary(config)
    if not isinstance(config.layer_scale, Real | None) or isinstance(config.layer_scale, bool):
        raise ValueError(f"`layer_scale` must be a number, such as 1e-5, or None. Received: {config.layer_scale!r}")


def check_rotary(config: ViTConfig):
    """Raises a ValueError for arguments of rotary positions that are out of range."""
    theta, coordinates = config.rotary_theta, config.rotary_coordinates
    if not isinstance(theta, Real) or not 1 < theta < np.inf:
        raise ValueError(f"`rotary_theta` must be a number above 1, such as 100. Received: {theta!r}")
    if coordinates not in COORDINATES:
        is_pair = isinstance(coordinates, tuple) and len(coordinates) == 2
        if not is_pair or not all(map(is_integer, coordinates)):
            raise ValueError(
                f"`rotary_coordinates` must be {' or '.join(map(repr, COORDINATES))}, or (rows, columns) of a grid, "
                f"such as (16, 16). Received: {coordinates!r}"
            )


def check_exclusions(config: ViTConfig):
    """Raises a ValueError for arguments that exclude each other."""
    kind, placement, pooling = config.position_embedding, config.position_placement, config.pooling
    exclusions = (
        (
            pooling in ("token", "token_and_gap") and not config.class_token,
            f"pooling={pooling!r} reads the class token: omit class_token.",
        ),
        (config.distillation and pooling != "token", "distillation=True reads two tokens: use pooling='token'."),
        (
            config.distillation and (config.representation_size or config.norm_after_pooling),
            "distillation=True has two linear heads: omit representation_size and norm_after_pooling.",
        ),
        (
            config.norm_after_pooling and pooling == "none",
            "norm_after_pooling=True requires a pooling other than 'none'.",
        ),
        (
            (kind in ("none", "relative") or config.is_rotary) and placement != "stem",
            f"position_embedding={kind!r} adds nothing to the tokens of later blocks: use position_placement='stem'.",
        ),
        (
            placement != "stem" and not config.prefix_positions,
            f"position_placement={placement!r} adds positions to all tokens: use prefix_positions=True.",
        ),
        (
            (kind == "relative" or config.is_rotary) and config.axial,
            f"axial=True attends along rows and columns, for which position_embedding={kind!r} is not defined: use "
            "another position_embedding.",
        ),
        (
            config.projection and (config.class_names is not None or config.multi_label),
            "projection=True has no classes: omit class_names and multi_label.",
        ),
        (config.projection and not config.num_classes, "num_classes=0 is no projection: omit projection."),
        *_exclusions_of_patch_dropout(config),
    )
    for excluded, fix in exclusions:
        if excluded:
            raise ValueError(f"These arguments exclude each other. {fix}")


def _exclusions_of_patch_dropout(config: ViTConfig):
    """What requires all patches, or adds positions where some are already dropped."""
    requirements = (
        (config.axial, "axial=True attends along rows and columns"),
        (
            config.position_embedding == "relative" or config.is_rotary,
            f"position_embedding={config.position_embedding!r} depends on distances in the grid",
        ),
        (config.position_placement != "stem", f"position_placement={config.position_placement!r} adds to all tokens"),
        (config.pooling == "none", "pooling='none' returns every token"),
    )
    for is_wrong, reason in requirements:
        yield bool(config.patch_dropout) and is_wrong, f"{reason}, which requires all patches: omit patch_dropout."
