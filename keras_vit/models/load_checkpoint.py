"""From a checkpoint of another project, or an .npz or .safetensors file of ours, to a model."""

import math
import warnings
from dataclasses import replace

from keras_vit.images import as_size
from keras_vit.models.bit import BiT
from keras_vit.models.load_arguments import check_arguments, check_patch_size
from keras_vit.models.load_keras import least_weights
from keras_vit.models.vit import HEADS, VisionTransformer
from keras_vit.preprocessing import Preprocessing


class ImageSizeWarning(UserWarning):
    """The size of a model's images was assumed."""


def load_checkpoint(weights, num_classes, weights_image_size, resample, arguments):
    """The model that the checkpoint describes, changed by the arguments."""
    from keras_vit.weights import open_checkpoint

    checkpoint = open_checkpoint(weights, weights_image_size)
    check_arguments(weights, BiT if checkpoint.is_bit else VisionTransformer, arguments)
    check_patch_size(weights, checkpoint.arguments.get("patch_size"), arguments)
    _check_size(checkpoint, arguments)
    own_classes = checkpoint.arguments["num_classes"]
    num_classes = own_classes if num_classes is None else num_classes
    keeps_head = num_classes == own_classes
    if checkpoint.is_bit:
        return _load_bit(checkpoint, keeps_head, {**arguments, "num_classes": num_classes})
    if "image_size" not in arguments and not weights_image_size:
        _warn_of_guess(checkpoint)
    return _load_vit(checkpoint, keeps_head, weights_image_size, resample, {**arguments, "num_classes": num_classes})


def _load_bit(checkpoint, keeps_head, arguments):
    from keras_vit.weights import load_weights

    size = as_size(arguments.get("image_size") or 224)
    preprocessing = Preprocessing(size, **checkpoint.preprocessing)
    model = BiT(**{**checkpoint.arguments, **arguments, "preprocessing": preprocessing})
    load_weights(model, checkpoint, () if keeps_head else ("head",))
    return model


def _load_vit(checkpoint, keeps_head, weights_image_size, resample, arguments):
    from keras_vit.weights import load_weights

    described = dict(checkpoint.arguments)
    if not keeps_head:
        described |= {"representation_size": None, "class_names": None, "multi_label": False, "projection": False}
    described["image_size"] = checkpoint.image_size or described["image_size"] or weights_image_size or 224
    described["num_heads"] = checkpoint.num_heads
    chosen = {**described, **arguments}
    _check_stated(checkpoint, chosen)
    try:
        preprocessing = Preprocessing(as_size(chosen["image_size"]), **checkpoint.preprocessing)
        model = VisionTransformer(**{**chosen, "preprocessing": preprocessing})
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"The description of {checkpoint.tensors.path}, such as its config.json, or an argument has a value of "
            f"another type: {error}"
        ) from error
    skip = () if keeps_head else tuple(name for name in HEADS if name != "pre_logits" or model.pre_logits is None)
    # Values that the caller chose should not cause a warning.
    forms = {name: chosen[name] for name in ("gelu", "epsilon")}
    checkpoint = replace(checkpoint, arguments=checkpoint.arguments | forms)
    load_weights(model, checkpoint, skip, weights_image_size, resample)
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
    """Warns if the image size is a guess: sine and cosine positions, which files omit, fit all sizes."""
    from keras_vit.weights.published import is_published

    found, path = checkpoint.arguments, checkpoint.tensors.path
    if found["image_size"] is None and found["position_embedding"] == "sincos_2d" and not is_published(path):
        warnings.warn(
            f"{path.name} does not state the size of its images. Assumed: 224 pixels. If you know another, pass "
            "image_size=...",
            ImageSizeWarning,
            stacklevel=5,
        )


def _check_size(checkpoint, arguments):
    """Raises a ValueError if the checkpoint's description declares more weights than the file has."""
    described = checkpoint.arguments
    if arguments.keys() & {"image_size", "patch_size"}:  # the caller's grid, not the file's
        described = {**described, "image_size": None}
    count = sum(math.prod(shape) for shape in checkpoint.tensors.shapes.values())
    try:
        declared = least_weights({"patch_size": 1, **described})
    except TypeError:  # reported where the model is built
        return
    if declared > count:
        raise ValueError(
            f"{checkpoint.tensors.path} has {count:,} weights, fewer than the {declared:,} that its names, shapes or "
            "config.json declare: download it again, and check image_size in config.json."
        )
