"""The section of a recipe that describes its model. No TensorFlow import here."""

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.values import Checked
from keras_vit.variants import BIT_SIZES

BIT = "BiT-"  # starts the names of variants without patches


@dataclass(frozen=True)
class Architecture(Checked):
    """The model, see `keras_vit.VisionTransformer`; the image size comes from the data.

    Args:
        variant: As for `keras_vit.ViT`, such as "B/16" or "R50+B/16"; or a BiT, such as "BiT-R50x1".
        depth: Number of blocks; None for that of the variant.
        width: Width of the tokens; None for that of the variant.
        mlp_dim: Hidden width of the MLPs; None for that of the variant.
        num_heads: Number of attention heads; None for that of the variant.
        pooling: "token", "gap" or "map".
        representation_size: Width of a hidden tanh layer before the head, as in the paper's pre-training; None for no
            such layer.
        position_embedding, position_placement, prefix_positions: See `ViTConfig`.
        initialization: Start weights of "vit" (the paper's code), "deit" or "mae", see
            `keras_vit.recipes.training.initialization`; not used with given weights.
        qk_norm: Normalize queries and keys: allows higher learning rates.
        gelu: "tanh", the approximation in the paper's code, or "erf", the exact form in PyTorch's.
        layer_scale: Initial value of learnable factors on the residual branches (arXiv 2103.17239); None for none.
        dropout: Rate of dropout.
        stochastic_depth: Rate of the last block, which grows linearly from 0 at the first; or several, one for each
            block.
        patch_dropout: Fraction of the patches that is dropped in training, at random; 0.5 halves the tokens.
    """

    place: ClassVar[str] = "architecture."

    variant: str = "B/16"
    depth: int | None = None
    width: int | None = None
    mlp_dim: int | None = None
    num_heads: int | None = None
    pooling: Literal["token", "gap", "map"] = "token"
    representation_size: int | None = None
    position_embedding: Literal["learned_1d", "learned_2d", "relative", "sincos_2d", "rotary", "none"] = "learned_1d"
    position_placement: Literal["stem", "every_layer", "shared"] = "stem"
    prefix_positions: bool = True
    initialization: Literal["vit", "deit", "mae"] = "vit"
    qk_norm: bool = False
    gelu: Literal["tanh", "erf"] = "tanh"
    layer_scale: float | None = None
    dropout: float = 0.0
    stochastic_depth: float | tuple[float, ...] = 0.0
    patch_dropout: float = 0.0

    @property
    def is_bit(self) -> bool:
        """Whether the model is a BiT, a ResNet without patches."""
        return self.variant.startswith(BIT)

    def _check_bit(self):
        if self.is_bit:
            variants = [BIT + size for size in BIT_SIZES]
            if self.variant not in variants:
                raise RecipeError(f"Expected one of {', '.join(variants)}.", {"architecture.variant": self.variant})
            check_bit_fields(self, [field.name for field in fields(self) if field.name != "variant"])


def check_bit_fields(architecture: Architecture, names):
    """Raises RecipeError for values of these fields that a BiT does not support, all but the defaults."""
    defaults = {f"architecture.{field.name}": field.default for field in fields(architecture) if field.name in names}
    values = {name: getattr(architecture, name.removeprefix("architecture.")) for name in defaults}
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    if changed:
        reason = "A BiT does not support these fields of an architecture."
        raise RecipeError(reason, changed, {name: defaults[name] for name in changed})
