"""Mean and standard deviation of a checkpoint's pixels: stated by its files, published, or assumed."""

import re

from keras_vit.pixel_range import CLIP, IMAGENET
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.published import is_published

# Parts of the names of models of timm and Hugging Face that all have ImageNet's mean: DeiT and DeiT III, DINO, MAE.
IMAGENET_NAMES = re.compile(r"(?<![a-z])(deit|dino|mae(?![a-z])|ijepa)")
# Files with such a name are described by the name of their folder.
UNNAMED = ("model", "pytorch_model")


def pixel_scaling(checkpoint: Checkpoint) -> dict:
    """The field `origin` of `Preprocessing`, and `mean` and `std` if they are assumed and not 0.5."""
    stated = checkpoint.preprocessing
    if {"mean", "std"} <= stated.keys():
        return {"origin": "file"}
    if is_published(checkpoint.tensors.path):
        return {"origin": "table"}
    if checkpoint.arguments.get("norm_before_encoder"):  # only CLIP's models have it
        return {"origin": "assumed", **CLIP}
    return {"origin": "assumed", **(IMAGENET if _resembles_imagenet(checkpoint) else {})}


def _resembles_imagenet(checkpoint) -> bool:
    """Whether all published models with these shapes, or this name, have ImageNet's mean, as in timm 1.0.27.

    Shapes: DeiT's distillation token, in files of transformers a register where it has no head; timm's class token with
    LayerScale, of DeiT III and DINOv2 (registers: none or 4). The plain shapes of DeiT are those of ViT.
    """
    arguments, source, path = checkpoint.arguments, checkpoint.source.name, checkpoint.tensors.path
    if source in ("dinov2", "hugging_face_dinov2"):
        return True
    if source not in ("timm", "hugging_face", "keras_hub"):
        return False
    name = path.parent.name if path.stem.partition(".")[0] in UNNAMED else path.name
    has_scale = source == "timm" and arguments["layer_scale"] is not None and arguments["class_token"]
    return bool(
        arguments.get("distillation")
        or (source == "hugging_face" and arguments["register_tokens"])
        or (has_scale and arguments["register_tokens"] in (0, 4))
        or IMAGENET_NAMES.search(name.lower())
    )
