"""What `write_tflite` is asked for, checked before any long work. n images, H W pixels of the model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_vit.export.checks import check_pooled, checked_images, exportable, exported_class_names
from keras_vit.export.names import ATTENTION, CLASSIFY, EMBED, HEAD
from keras_vit.export.tflite.description import Description
from keras_vit.export.tflite.encoder import encoder_blocks
from keras_vit.images import is_integer
from keras_vit.models.classification import has_classes, is_projection, output_activation
from keras_vit.models.outer_model import OuterModel

FLOATS = ("float32", "float16")
INT4 = "int4-weights"
DYNAMIC = ("dynamic-int8", INT4)  # activations are quantized at run time, within each matrix product
STATIC = ("mixed-int8", "int8", "int16x8")  # in ranges of a calibration
FORMATS = (*FLOATS, *DYNAMIC, *STATIC)
MIN_IMAGES = 20  # fewer yield poor ranges; LiteRT's guide recommends 100 to 500
ALL_ELSE = "all else"  # pixels, patches, the last normalization


@dataclass(frozen=True)
class Request:
    """Arguments of `write_tflite` that fit together, see `checked_request`.

    Args:
        model: A model of ours, or an `OuterModel`.
        formats, signatures, equalize, batch_size: See `write_tflite`.
        calibration: (n, H, W, 3) float32; None if no format uses it.
        description: The metadata of the files, with the class names, if the first signature classifies.
        in_float: Regular expressions of operations that stay in float, see `operations_of`.
    """

    model: Any
    formats: Sequence[str]
    signatures: Sequence[str]
    calibration: np.ndarray | None
    description: Description
    in_float: tuple[str, ...]
    equalize: bool
    batch_size: int


def checked_request(
    model,
    formats: Sequence[str],
    calibration=None,
    *,
    signatures: Sequence[str] = (CLASSIFY,),
    class_names: Sequence | None = None,
    license: str = "",
    equalize: bool = True,
    keep_float: Sequence[str] = (),
    batch_size: int = 1,
) -> Request:
    """The arguments of `write_tflite`, which see; raises ValueError for what it does not support."""
    for name, values in (("formats", formats), ("signatures", signatures), ("keep_float", keep_float)):
        if isinstance(values, str):
            raise ValueError(f"`{name}` must be a list. Received: the string {values!r}. Pass {name}=[{values!r}]")
    model = exportable(model, "A .tflite file")
    check_pooled(model)
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"`formats` must be some of {', '.join(FORMATS)}. Received: {list(formats)}")
    if model.channels not in (1, 3):
        raise ValueError(
            f"A .tflite file takes RGB or gray images. Received: {model.name}, of {model.channels} channels. Use "
            "write_saved_model or write_onnx."
        )
    integers = [name for name in formats if name not in FLOATS]
    if isinstance(model, OuterModel) and integers:
        raise ValueError(
            f"A model around one of keras_vit is written in {', '.join(FLOATS)}. Received: {model.name} and "
            f"{', '.join(integers)}, for which the layers are rewritten. Export {model.ours.name}, the model inside."
        )
    names = exported_class_names(model, class_names, CLASSIFY in signatures)
    available = available_signatures(model)
    if CLASSIFY in signatures and CLASSIFY not in available:
        raise no_head(model, "signatures=('embed',), or add a head")
    if not signatures or len(set(signatures)) < len(signatures) or set(signatures) - set(available):
        raise ValueError(
            f"`signatures` must be some of {', '.join(available)}, which {model.name} has. Received: {list(signatures)}"
        )
    if not is_integer(batch_size):
        raise ValueError(f"`batch_size` must be a positive integer. Received: {batch_size!r}")
    static = [name for name in formats if name in STATIC]
    if static and len(signatures) > 1:
        raise ValueError(f"Format {static[0]!r} supports one signature per file. Received: {list(signatures)}")
    uses_images = static or (calibration is not None and len(signatures) == 1 and integers)
    if uses_images:
        what = f"Format {uses_images[0]!r} requires `calibration`, best 100 to 500 images of the training set:"
        calibration = checked_images(calibration, model, what, MIN_IMAGES)
    return Request(
        model,
        formats,
        signatures,
        calibration if uses_images else None,
        _description(model, signatures[0], names, license),
        operations_of(model, keep_float),
        equalize,
        int(batch_size),
    )


def _description(model, first, class_names, license) -> Description:
    kind = type(getattr(model, "ours", model)).__name__
    text = f"{kind} of keras_vit, {model.count_params():,} weights. Pixels in [0, 255]."
    if first == CLASSIFY and output_activation(model) == "sigmoid":
        text += " Each class has a probability of its own, a sigmoid: they do not add up to 1."
    if first == EMBED and is_projection(model):
        text += " Embeddings are in the space that images share with texts."
    return Description(
        model.name,
        text,
        license=license,
        class_names=class_names if first == CLASSIFY else None,
        preprocessing=model.preprocessing.get_config(),
    )


def no_head(model, instead: str) -> ValueError:
    """The error for the signature "classify" of a model without classes; `instead` is what to pass."""
    return ValueError(f"{model.name} has no head to classify with. Pass {instead}.")


def available_signatures(model) -> tuple[str, ...]:
    """Signatures that a model can have: "classify" requires classes, "attention" plain encoder blocks."""
    if isinstance(model, OuterModel):
        return (CLASSIFY,)
    return (CLASSIFY,) * has_classes(model) + (EMBED,) + (ATTENTION,) * bool(encoder_blocks(model))


def part_names(model) -> list[str]:
    """Attention and MLP of each block, such as "block_3/mlp", "head" and "all else"."""
    branches = ("attention", "mlp")
    blocks = [f"{block.name}/{branch}" for block in encoder_blocks(model) for branch in branches]
    return [*blocks, *["head"] * bool(model.num_classes), ALL_ELSE]


def operations_of(model, parts: Sequence[str]) -> tuple[str, ...]:
    """Regular expressions, one of which matches the name of each operation of these parts, for `quantize`."""
    names = part_names(model)
    if unknown := [part for part in parts if part not in names]:
        raise ValueError(f"Parts of {model.name}: {', '.join(names)}. Received: {', '.join(unknown)}")
    return tuple(f".*{any_of([part])}.*" if part != ALL_ELSE else f"^(?!.*{any_of(names[:-1])}).*" for part in parts)


def all_but(model, part: str) -> tuple[str, ...]:
    """The same for the operations of all other parts."""
    return (f".*{any_of(part_names(model)[:-1])}.*" if part == ALL_ELSE else f"^(?!.*{any_of([part])}).*",)


def any_of(names) -> str:
    """A regular expression that matches where one of these names of parts or operations is."""
    return f"({'|'.join(re.escape(HEAD if name == 'head' else name) for name in names)})"
