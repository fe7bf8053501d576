"""From a checkpoint to a model: `keras_vit.load`."""

import math
import os
import re
import warnings
from dataclasses import replace

from keras_vit.class_names import own_class_names
from keras_vit.images import as_size
from keras_vit.images.pixel_range import warn_if_assumed
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.messages import first_names
from keras_vit.models.bit import BiT
from keras_vit.models.load_checks import check_arguments, check_size
from keras_vit.models.load_keras import changed, load_h5, read_model
from keras_vit.models.vit import HEADS, VisionTransformer
from keras_vit.trained import local_folder
from keras_vit.weights import load_weights, open_checkpoint
from keras_vit.weights.published import is_published


def load(weights, *, num_classes=None, weights_image_size=None, resample=None, preprocessing=None, **arguments):
    """Builds the model of a checkpoint and loads its weights exactly.

    Args:
        weights: A file (.npz, .safetensors, .keras, .weights.h5), a folder with model.safetensors and config.json, the
            folder of a finished run, whose model.keras is loaded, "hf:owner/name" on the Hugging Face hub, a published
            name such as "vit/imagenet21k/ViT-B_16", see `keras_vit.weights.published_names()`, a name of
            `keras_vit.weights.packaged_names()`, which needs no download, or a model of KerasHub or tf-models-official
            in memory. A .weights.h5 of `model.save_weights` holds no configuration: pass the model's arguments, and its
            `image_size` (by default 224).
        num_classes: By default that of the file. Another number replaces the head by zeros and removes the file's
            hidden tanh layer, as the paper does for fine-tuning. 0 for no head.
        weights_image_size: Image size of the checkpoint in pixels, required only if its grid of positions is not square
            and no config.json specifies it.
        resample: How positions are resampled to another `image_size`, see `resample_grid`; by default as in the source
            of the checkpoint.
        preprocessing: How images are prepared, if it is not as the checkpoint states, or as is assumed where it states
            nothing: "imagenet", "clip" or "half" for the mean and standard deviation of ImageNet or CLIP, or 0.5; a
            dict of some fields of `Preprocessing`; or a `Preprocessing`, whose image size is replaced by the model's.
        **arguments: Arguments of `VisionTransformer` or `BiT` that differ from the checkpoint: `image_size`, `dropout`,
            `dtype`, `name`, `channels` (the first kernel is then summed or repeated, as by timm), ... Arguments that do
            not fit the weights, such as another width, are errors, and so are those that the checkpoint's model does
            not have. Two models inside one, as of an ensemble, need another `name` each. `dtype` is by default Keras's
            global dtype policy, float32 unless set, whatever the precision of the checkpoint.

    Returns:
        A `VisionTransformer`, or a `BiT` for a file of a ResNet; an `AxialResNet` from a .keras file of one.

    Raises:
        FileNotFoundError, ValueError, OSError: The checkpoint does not exist, is of unknown kind or damaged, or does
            not fit; the message lists every name and shape that does not.

    Warns:
        PixelRangeWarning: Mean and standard deviation of the pixels are neither stated by the checkpoint nor given.
        ImageSizeWarning: `image_size` is neither stated by the checkpoint nor given, and 224 was assumed.
    """
    weights = local_folder(weights)
    names = arguments.get("class_names")
    Preprocessing.from_argument(preprocessing, 224)  # raises before anything is read
    model = _load(weights, num_classes, weights_image_size, resample, arguments)
    if names is None and isinstance(weights, str | os.PathLike):
        # A file of names beside the weights can be edited, and formats other than .keras hold no names.
        model.class_names = own_class_names(weights, model.num_classes, num_classes is None) or model.class_names
    model.preprocessing = preprocessing
    warn_if_assumed(weights, model.preprocessing)
    return model


def _load(weights, num_classes, weights_image_size, resample, arguments):
    """The model, changed by the arguments, that Keras saved, or that a checkpoint of another project describes."""
    if isinstance(weights, str | os.PathLike) and os.path.isfile(os.path.join(weights, "model.keras")):
        weights = os.path.join(weights, "model.keras")
    if str(weights).endswith(".weights.h5"):
        resizes = resample is not None or weights_image_size is not None
        if (model := load_h5(weights, num_classes, resizes, arguments)) is not None:
            return model
    if is_keras := str(weights).endswith(".keras"):
        if weights_image_size is not None:
            raise ValueError(f"{weights} states the image size of its weights: omit weights_image_size.")
        model = read_model(weights)
        kind, patch_size = type(model), getattr(model, "patch_size", None)
    else:
        checkpoint = open_checkpoint(weights, weights_image_size)
        if (other := _with_other_prefix(checkpoint, arguments.get("image_size"))) is not None:
            checkpoint, weights_image_size = other, arguments["image_size"]
        kind = BiT if checkpoint.is_bit else VisionTransformer
        patch_size = checkpoint.arguments.get("patch_size")
    check_arguments(weights, kind, patch_size, arguments)
    if not is_keras:
        check_size(checkpoint, arguments)
        return _build(checkpoint, num_classes, weights_image_size, resample, arguments)
    return changed(model, weights, num_classes, resample, arguments)


# What stands for masked patches in pre-training.
MASK = re.compile(r"(^|[._/])mask(ed)?_(token|embed)")


class ImageSizeWarning(UserWarning):
    """The size of a model's images was assumed."""


def _with_other_prefix(checkpoint, size):
    """The checkpoint with the other assumption of its `prefix_is_guess`, if positions of the requested size need it.

    Raises a ValueError if the assumption fits a square, as models usually are, too.
    """
    if size is None or not checkpoint.prefix_is_guess:
        return None
    found, rows = checkpoint.arguments, checkpoint.tensors.shapes["pos_embed"][1]
    prefix = found["class_token"] + found["distillation"] + found["register_tokens"]
    patches = math.prod(side // step for side, step in zip(as_size(size), found["patch_size"]))
    if patches + prefix * (not found["prefix_positions"]) != rows:
        return None
    usual = not (found["register_tokens"] or found["layer_scale"])  # DeiT III, and timm's models with registers
    if found["image_size"] is not None and found["prefix_positions"] == usual:
        words = ("with", "without") if found["prefix_positions"] else ("without", "with")
        raise ValueError(
            f"{checkpoint.tensors.path} has {rows} positions: those of {found['image_size']} pixels {words[0]} one for "
            f"each class token and register, or of {as_size(size)} pixels {words[1]}. Pass the size that it was "
            "trained at: weights_image_size=(height, width)."
        )
    other = {"image_size": as_size(size), "prefix_positions": not found["prefix_positions"]}
    return replace(checkpoint, arguments=found | other, states_size=True)


def _build(checkpoint, num_classes, weights_image_size, resample, arguments):
    """The model that a checkpoint describes, with its weights."""
    own_classes = checkpoint.arguments["num_classes"]
    num_classes = own_classes if num_classes is None else num_classes
    keeps_head, arguments = num_classes == own_classes, {**arguments, "num_classes": num_classes}
    if not checkpoint.is_bit:
        return _build_vit(checkpoint, keeps_head, weights_image_size, resample, arguments)
    preprocessing = Preprocessing(arguments.get("image_size") or 224, **checkpoint.preprocessing)
    model = BiT(**{**checkpoint.arguments, **arguments, "preprocessing": preprocessing})
    load_weights(model, checkpoint, () if keeps_head else ("head",))
    return model


def _build_vit(checkpoint, keeps_head, weights_image_size, resample, arguments):
    if "image_size" not in arguments and not weights_image_size:
        _warn_of_guess(checkpoint)
    described = dict(checkpoint.arguments)
    if not keeps_head:
        described |= {"representation_size": None, "class_names": None, "multi_label": False, "projection": False}
    described["image_size"] = checkpoint.image_size or described["image_size"] or weights_image_size or 224
    described["num_heads"] = checkpoint.num_heads
    chosen = {**described, **arguments}
    _check_stated(checkpoint, chosen)
    try:
        preprocessing = Preprocessing(chosen["image_size"], **checkpoint.preprocessing)
        model = VisionTransformer(**{**chosen, "preprocessing": preprocessing})
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"The description of {checkpoint.tensors.path}, such as its config.json, or an argument has a value of "
            f"another type: {error}"
        ) from error
    skip = [name for name in checkpoint.tensors.shapes if MASK.search(name)]
    if not keeps_head:
        skip += [name for name in HEADS if name != "pre_logits" or model.pre_logits is None]
    elif not described["num_classes"]:  # a head that is no linear classifier has no classes here
        skip += [name for name in HEADS if getattr(model, name) is None]
    # Values that the caller chose should not cause a warning.
    forms = {name: chosen[name] for name in ("gelu", "epsilon")}
    checkpoint = replace(checkpoint, arguments=checkpoint.arguments | forms)
    report = load_weights(model, checkpoint, skip, weights_image_size, resample)
    if keeps_head and report.skipped:
        warnings.warn(
            f"{checkpoint.tensors.path.name} has arrays that the model does not, which were skipped: "
            f"{first_names(report.skipped)}",
            stacklevel=4,
        )
    return model


def _check_stated(checkpoint, chosen):
    """Raises a ValueError for arguments that neither the checkpoint nor the caller states."""
    if chosen["num_heads"] is None:
        raise ValueError(
            f"{checkpoint.tensors.path} does not specify the number of attention heads, and no published model has its "
            f"width of {chosen['width']}. Pass num_heads=... (`keras-vit convert`: --num-heads)."
        )
    if chosen["gelu"] is None:
        raise ValueError(
            f"{checkpoint.tensors.path} does not specify its GELU: there is no open_clip_config.json beside it. Pass "
            'gelu="quick" for OpenAI\'s CLIP, or "erf" for those of LAION and others.'
        )


def _warn_of_guess(checkpoint):
    """Warns if the image size is a guess: positions that files omit fit all sizes."""
    found, path = checkpoint.arguments, checkpoint.tensors.path
    is_computed = found.get("position_embedding") in ("sincos_2d", "rotary")
    if found["image_size"] is None and is_computed and not is_published(path):
        warnings.warn(
            f"{path.name} does not state the size of its images. Assumed: 224 pixels. If you know another, pass "
            "image_size=...",
            ImageSizeWarning,
            stacklevel=6,
        )
