"""DINOv2 of its authors: files of facebookresearch/dinov2, saved as .safetensors."""

import re
from dataclasses import replace

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors
from keras_vit.weights.naming import Source
from keras_vit.weights.sources import timm
from keras_vit.weights.sources.arrays import read_arguments, token_with_position, with_derived

MASK = "mask_token"
REGISTERS = "register_tokens"
# dinov2/models/vision_transformer.py; its names are timm's but for these. Evaluation: dinov2/data/transforms.py.
DINOV2 = Source(
    "dinov2",
    "facebookresearch/dinov2",
    timm.TIMM.naming,
    gelu="erf",
    epsilon=1e-6,
    resample="bicubic_offset",
    preprocessing={**timm.TIMM.preprocessing, "crop_fraction": 0.875},
)
SPELLINGS = ((r"\.mlp\.w12\.", ".mlp.fc1."), (r"\.mlp\.w3\.", ".mlp.fc2."), (f"^{REGISTERS}$", "reg_token"))


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds the encoder of a DINOv2 under its authors' names. MAE's has a mask token, too."""
    return timm.PATCHES in tensors and (MASK in tensors or REGISTERS in tensors) and timm.DECODER not in tensors


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file. `image_size` is ignored. The token of masked patches, for training only, is omitted."""
    tensors = read_arguments(_timm_arrays, tensors)
    arguments = read_arguments(timm.model_arguments, tensors, {})
    # DinoVisionTransformer's interpolate_offset and interpolate_antialias, as dinov2/hub/backbones.py sets them.
    source = replace(DINOV2, resample="bicubic_antialias") if arguments["register_tokens"] else DINOV2
    return Checkpoint(tensors, source, arguments, {})


def _timm_arrays(tensors):
    if REGISTERS in tensors:
        tensors = with_derived(tensors, token_with_position(tensors, "cls_token", "pos_embed"))
    return with_derived(tensors, {}, without=[MASK]).renamed(_timm_name)


def _timm_name(name):
    for pattern, replacement in SPELLINGS:
        name = re.sub(pattern, replacement, name)
    return name
