"""What `keras_vit.load` checks before it builds: the arguments, and the number of weights that a file declares."""

import inspect
import math

from keras_vit.images import as_size
from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.bit import BiT
from keras_vit.models.image_classifier import ImageClassifier
from keras_vit.models.vit import VisionTransformer

KINDS = (VisionTransformer, BiT, AxialResNet, ImageClassifier)
# Of the paper's largest, G/14, 1.8 billion; DINOv3's 7B has 6.7 billion.
MOST_WEIGHTS = 4_000_000_000


def check_arguments(weights, kind, patch_size, arguments):
    """Raises a ValueError for arguments that a model of this kind does not have, and for another patch size."""
    unknown = sorted(set(arguments).difference(_names(kind)))
    if unknown:
        fitting = [other.__name__ for other in KINDS if set(arguments).issubset(_names(other))]
        fix = f"Expected a checkpoint of {fitting[0]}." if fitting else f"Known: {', '.join(_names(kind))}."
        raise ValueError(
            f"{weights} is a checkpoint of {kind.__name__}, which has no argument {', '.join(unknown)}. {fix}"
        )
    requested = arguments.get("patch_size")
    if None not in (patch_size, requested) and as_size(requested, "patch_size") != patch_size:
        raise ValueError(
            f"{weights} has patches of {patch_size} pixels. Received: patch_size={requested}. Load it without "
            f"patch_size and resize its patch embedding: model.with_patch_size({requested})"
        )


def _names(kind):
    return [*(name for name in inspect.signature(kind).parameters if name != "kwargs"), "name", "dtype", "trainable"]


def check_size(checkpoint, arguments):
    """Raises a ValueError for too many weights, or if the checkpoint's description declares more than the file has."""
    described = checkpoint.arguments
    if arguments.keys() & {"image_size", "patch_size"}:  # the caller's grid, not the file's
        described = {**described, "image_size": None}
    count = sum(math.prod(shape) for shape in checkpoint.tensors.shapes.values())
    if count > MOST_WEIGHTS:
        raise ValueError(
            f"{checkpoint.tensors.path} has {count:,} weights, {4 * count / 1e9:.0f} GB in float32. Supported: up to "
            f"{MOST_WEIGHTS:,}, such as DINOv3's S, S+, B, L and H+. Load a smaller model of its family."
        )
    try:
        declared = least_weights({"patch_size": 1, **described})
    except TypeError:  # reported where the model is built
        return
    if declared > count:
        raise ValueError(
            f"{checkpoint.tensors.path} has {count:,} weights, fewer than the {declared:,} that its names, shapes or "
            "config.json declare: download it again, and check image_size in config.json."
        )


def least_weights(arguments: dict) -> int:
    """A lower bound of the number of weights of a VisionTransformer, BiT or AxialResNet, without building it.

    With LoRA, whose matrices are not in a file, it is still one: they are smaller than the kernels.
    """
    width, depth, stages = arguments.get("width", 0), arguments.get("depth", 0), arguments.get("stages")
    classes = arguments.get("num_classes", 0)
    if stages:  # one kernel of each unit, and the head, at the width of the first stage
        filters = 32 * arguments.get("width_factor", 1)
        return int(filters * (sum(stages) * filters + classes))
    if not depth or "patch_size" not in arguments:  # of a layer of these models
        return 0
    total = depth * width * (4 * width + 2 * arguments.get("mlp_dim", 0)) + width * arguments.get("register_tokens", 0)
    total += width * sum(settings.get("lora_rank", 0) for settings in arguments.get("inner_layers", {}).values())
    hidden = arguments.get("representation_size")
    total += hidden * (width + classes) if hidden else width * classes
    height, columns = as_size(arguments["patch_size"], "patch_size")
    if arguments.get("resnet_stages") is None:
        total += arguments.get("channels", 3) * height * columns * width
    size = arguments.get("image_size")
    if size is not None and arguments.get("position_embedding", "learned_1d") == "learned_1d":
        rows, pixels = as_size(size)
        total += rows // height * (pixels // columns) * width
    return total
