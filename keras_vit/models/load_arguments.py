"""Checks of the arguments of `keras_vit.load`, for every kind of checkpoint."""

import inspect

from keras_vit.images import as_size
from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.bit import BiT
from keras_vit.models.vit import VisionTransformer

KINDS = (VisionTransformer, BiT, AxialResNet)


def check_arguments(weights, kind, arguments):
    """Raises a ValueError for arguments that the checkpoint's model does not have."""
    unknown = sorted(set(arguments).difference(_names(kind)))
    if unknown:
        fitting = [other.__name__ for other in KINDS if set(arguments).issubset(_names(other))]
        fix = f"Expected a checkpoint of {fitting[0]}." if fitting else f"Known: {', '.join(_names(kind))}."
        raise ValueError(
            f"{weights} is a checkpoint of {kind.__name__}, which has no argument {', '.join(unknown)}. {fix}"
        )


def check_patch_size(weights, own, arguments):
    """Raises a ValueError for another patch size than the checkpoint's."""
    patch_size = arguments.get("patch_size")
    if None not in (own, patch_size) and as_size(patch_size, "patch_size") != as_size(own):
        raise ValueError(
            f"{weights} has patches of {own} pixels. Received: patch_size={patch_size}. Load it without patch_size and "
            f"resize its patch embedding: model.with_patch_size({patch_size})"
        )


def _names(kind):
    return [*(name for name in inspect.signature(kind).parameters if name != "kwargs"), "name", "dtype", "trainable"]
