"""Constructors of the published models, such as `ViT_B16()`: one line per variant."""

from collections.abc import Callable

import keras

from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.bit import BiT
from keras_vit.models.load import load
from keras_vit.models.vit import VisionTransformer
from keras_vit.variants import BIT_SIZES, parse_variant


def ViT(variant: str, weights=None, *, num_classes: int | None = None, **arguments) -> VisionTransformer:
    """Builds a Vision Transformer by name.

    Args:
        variant: Such as "B/16" or "R50+B/16", see `keras_vit.variants`; any patch size for a plain model.
        weights: A file, folder or published name, see `keras_vit.load`, or None for random weights.
        num_classes: By default that of the weights, 1000 without weights; see `keras_vit.load`.
        **arguments: Arguments of `VisionTransformer` (image_size, pooling, dropout, dtype, ...) and, with weights, of
            `keras_vit.load`. `image_size` is by default that of the weights, 224 without weights.

    Raises:
        FileNotFoundError, ValueError: The variant is unknown, arguments exclude each other, or the weights do not fit
            the model.
    """
    arguments = {**parse_variant(variant), **arguments}
    arguments = named(arguments, _name(variant))
    if weights is not None:
        return _loaded(VisionTransformer, weights, num_classes=num_classes, **arguments)
    arguments.setdefault("image_size", 224)
    return VisionTransformer(num_classes=1000 if num_classes is None else num_classes, **arguments)


def _name(variant, kind="ViT"):
    letters = variant.replace("/", "")
    return letters.replace("+", "_ViT_") if "+" in letters else f"{kind}_{letters}"


def named(arguments: dict, name: str) -> dict:
    """Arguments with a name: by default this one, then "name_1", ..., as Keras numbers layers of one model."""
    if "name" in arguments:
        return arguments
    count = keras.backend.get_uid(name)
    return {"name": name if count == 1 else f"{name}_{count - 1}", **arguments}


def _loaded(kind, weights, **arguments):
    """The model of a checkpoint; raises a ValueError if it is of another kind whose arguments have the same names."""
    model = load(weights, **arguments)
    if not isinstance(model, kind):
        raise ValueError(
            f"{weights} is a checkpoint of {type(model).__name__}. Expected a checkpoint of {kind.__name__}."
        )
    return model


def _vit(variant: str, kind: str = "ViT", **defaults) -> Callable[..., VisionTransformer]:
    name = _name(variant, kind)

    def build(weights=None, **arguments) -> VisionTransformer:
        return ViT(variant, weights, **named({**defaults, **arguments}, name))

    build.__name__ = build.__qualname__ = name
    also = "".join(f", {key}={value!r}" for key, value in defaults.items())
    build.__doc__ = f"{name}: see `keras_vit.ViT({variant!r}, weights{also}, **arguments)`."
    return build


def _bit(size: str) -> Callable[..., BiT]:
    stages, width_factor = BIT_SIZES[size]

    def build(weights=None, **arguments) -> BiT:
        arguments = {"stages": stages, "width_factor": width_factor, **arguments}
        arguments = named(arguments, f"BiT_{size}")
        return BiT(**arguments) if weights is None else _loaded(BiT, weights, **arguments)

    build.__name__ = build.__qualname__ = f"BiT_{size}"
    build.__doc__ = f"BiT-{size}: `keras_vit.BiT` with its stages and width factor; for `weights` see `keras_vit.load`."
    return build


def AxialResNet50(weights=None, **arguments) -> AxialResNet:
    """AxialResNet-50 of appendix D.6; for the arguments see `keras_vit.AxialResNet`.

    `weights` is a .keras file, see `keras_vit.load`, or None for random weights.
    """
    arguments = {"stages": BIT_SIZES["R50x1"][0], **arguments}
    arguments = named(arguments, "AxialResNet50")
    return AxialResNet(**arguments) if weights is None else _loaded(AxialResNet, weights, **arguments)


ViT_Ti16 = _vit("Ti/16")
ViT_S32 = _vit("S/32")
ViT_S16 = _vit("S/16")
ViT_B32 = _vit("B/32")
ViT_B16 = _vit("B/16")
ViT_B8 = _vit("B/8")
ViT_L32 = _vit("L/32")
ViT_L16 = _vit("L/16")
ViT_L14 = _vit("L/14")
ViT_H16 = _vit("H/16")
ViT_H14 = _vit("H/14")
ViT_g14 = _vit("g/14")
ViT_G14 = _vit("G/14")

R_ViT_Ti16 = _vit("R+Ti/16")
R26_ViT_S32 = _vit("R26+S/32")
R26_ViT_B32 = _vit("R26+B/32")
R50_ViT_B16 = _vit("R50+B/16")
R50_ViT_B32 = _vit("R50+B/32")
R50_ViT_L16 = _vit("R50+L/16")
R50_ViT_L32 = _vit("R50+L/32")

# Distilled, arXiv 2012.12877; exact GELU as in its code.
DeiT_Ti16 = _vit("Ti/16", "DeiT", distillation=True, gelu="erf")
DeiT_S16 = _vit("S/16", "DeiT", distillation=True, gelu="erf")
DeiT_B16 = _vit("B/16", "DeiT", distillation=True, gelu="erf")

# Figure 13. The paper does not specify the class token in axial attention, so the patches are averaged.
AxialViT_B32 = _vit("B/32", "AxialViT", axial=True, pooling="gap")
AxialViT_B16 = _vit("B/16", "AxialViT", axial=True, pooling="gap")

BiT_R50x1 = _bit("R50x1")
BiT_R50x2 = _bit("R50x2")
BiT_R50x3 = _bit("R50x3")
BiT_R101x1 = _bit("R101x1")
BiT_R101x3 = _bit("R101x3")
BiT_R152x1 = _bit("R152x1")
BiT_R152x2 = _bit("R152x2")
BiT_R152x4 = _bit("R152x4")
BiT_R200x3 = _bit("R200x3")
