"""ViT, DeiT and hybrids of timm: .safetensors files with config.json."""

import math
import re

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors, read_json
from keras_vit.weights.naming import Naming
from keras_vit.weights.resnet_naming import ResNetNaming
from keras_vit.weights.sources.hugging_face import PILLOW_FILTERS, TORCH_LEAVES
from keras_vit.weights.sources.shapes import (
    kernel_shape,
    num_blocks,
    read_arguments,
    resnet_stages,
    resnet_stride,
    square_image_size,
)
from keras_vit.weights.sources.source import Source

OUR_BLOCK, BLOCK = "encoder/block_{i}", "blocks.{i}"
PATCHES = "patch_embed.proj.weight"
BACKBONE = "patch_embed.backbone"
STEM = r"^patch_embed\.backbone\.(conv|norm)\."
UNIT = r"patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\."
# models/vision_transformer.py, models/deit.py and models/vision_transformer_hybrid.py.
TIMM = Source(
    "timm",
    "timm",
    Naming(
        {
            "patch_embedding/projection": ("patch_embed.proj.",),
            f"{OUR_BLOCK}/norm_attention": (f"{BLOCK}.norm1.",),
            f"{OUR_BLOCK}/attention/qkv": (f"{BLOCK}.attn.qkv.",),
            f"{OUR_BLOCK}/attention/query_norm": (f"{BLOCK}.attn.q_norm.",),
            f"{OUR_BLOCK}/attention/key_norm": (f"{BLOCK}.attn.k_norm.",),
            f"{OUR_BLOCK}/attention/out": (f"{BLOCK}.attn.proj.",),
            f"{OUR_BLOCK}/scale_attention": (f"{BLOCK}.ls1.gamma",),
            f"{OUR_BLOCK}/norm_mlp": (f"{BLOCK}.norm2.",),
            f"{OUR_BLOCK}/mlp/hidden": (f"{BLOCK}.mlp.fc1.",),
            f"{OUR_BLOCK}/mlp/out": (f"{BLOCK}.mlp.fc2.",),
            f"{OUR_BLOCK}/scale_mlp": (f"{BLOCK}.ls2.gamma",),
            "encoder/norm": ("norm.",),
            "pooled_norm": ("fc_norm.",),
            "head": ("head.",),
            "head_distillation": ("head_dist.",),
        },
        TORCH_LEAVES,
        {
            "positions/table": "pos_embed",
            "class_token/token": "cls_token",
            "distillation_token/tokens": "dist_token",
            "register_tokens/tokens": "reg_token",
        },
        "torch",
        ResNetNaming(
            {"root/conv_root": f"{BACKBONE}.stem.conv", "root/gn_root": f"{BACKBONE}.stem.norm"},
            {
                **{f"conv{i}": f"conv{i}" for i in (1, 2, 3)},
                **{f"gn{i}": f"norm{i}" for i in (1, 2, 3)},
                "conv_proj": "downsample.conv",
                "gn_proj": "downsample.norm",
            },
            f"{BACKBONE}.stages.{{block}}.blocks.{{unit}}.{{layer}}",
            first=0,
            leaves=TORCH_LEAVES,
            separator=".",
        ),
    ),
    gelu="erf",
    epsilon=1e-6,
    resample="bicubic_antialias",
    preprocessing={"resize": "shortest", "crop_fraction": 0.9, "interpolation": "bicubic", "antialias": True},
)
# Parts of the names of models whose blocks or activations differ from the paper's.
OTHER_ARCHITECTURES = (
    "siglip",
    "clip",
    "_rpn_",
    "_18x2_",
    "_36x1_",
    "_xp_",
    "wee_",
    "_miil",
    "radio",
    "intern",
    "tips",
)
POOLINGS = {"avg": "gap", "token": "token"}
GELUS = {None: "erf", "gelu": "erf", "gelu_tanh": "tanh"}


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a Vision Transformer of timm."""
    return PATCHES in tensors


def read(tensors: Tensors, image_size=None) -> Checkpoint:
    """The checkpoint in a file, with config.json in its folder. `image_size` overrides that of config.json."""
    config = read_json(tensors.path.with_name("config.json"))
    if image_size is not None:
        config = {**config, "model_args": {**config.get("model_args", {}), "img_size": image_size}}
    # The root of a hybrid without stages has no "stem" in its names.
    tensors = tensors.renamed(lambda name: re.sub(STEM, rf"{BACKBONE}.stem.\1.", name))
    arguments = read_arguments(_arguments, tensors, config)
    return Checkpoint(tensors, TIMM, arguments, _preprocessing_fields(config.get("pretrained_cfg", {})))


def _arguments(tensors, config):
    shapes = tensors.shapes
    architecture = config.get("architecture", "")
    unsupported = [part for part in OTHER_ARCHITECTURES if part in architecture]
    unsupported += sorted(name for name in shapes if name.startswith(("norm_pre.", "attn_pool.")))
    if unsupported:
        raise ValueError(f"{tensors.path} is a variant of timm that is not supported: it has {unsupported[0]!r}.")
    width, _, patch_height, patch_width = kernel_shape(tensors, PATCHES)
    options = config.get("model_args", {})
    has_token, has_second_token = "cls_token" in shapes, "dist_token" in shapes
    registers = shapes.get("reg_token", (1, 0))[1]
    prefix_tokens, positions = has_token + has_second_token + registers, shapes["pos_embed"][1]
    stages = resnet_stages(shapes, f"{BACKBONE}.stem.conv.weight", UNIT)
    stride = resnet_stride(stages)
    patch_size, norm_after_pooling = (patch_height * stride, patch_width * stride), "fc_norm.weight" in shapes
    size = options.get("img_size") or config.get("pretrained_cfg", {}).get("input_size", [None])[1:]
    size = tuple(size) if isinstance(size, (list, tuple)) and size else size or None
    prefix_positions = _has_prefix_positions(positions, prefix_tokens, size, patch_size, options)
    default_pooling = "avg" if norm_after_pooling or not has_token else "token"
    pooling = options.get("global_pool") or config.get("global_pool") or default_pooling
    for name, value, known in (("global_pool", pooling, POOLINGS), ("act_layer", options.get("act_layer"), GELUS)):
        if value not in known:
            names = ", ".join(filter(None, known))
            raise ValueError(f"{tensors.path}: {name} is {value!r} in config.json. Supported: {names}")
    return {
        "image_size": size or square_image_size(positions - prefix_tokens * prefix_positions, patch_size),
        "patch_size": patch_size,
        "depth": num_blocks(shapes, r"blocks\.(\d+)\."),
        "width": width,
        "mlp_dim": shapes["blocks.0.mlp.fc1.bias"][0],
        "num_heads": options.get("num_heads") or (16 if "base_patch16_gap" in architecture else None),
        "num_classes": shapes.get("head.bias", (0,))[0],
        "pooling": POOLINGS[pooling],
        "class_token": has_token,
        "distillation": has_second_token,
        "register_tokens": registers,
        "prefix_positions": prefix_positions,
        "resnet_stages": stages,
        "resnet_form": "v1" if stages is None else "timm",
        "gelu": GELUS[options.get("act_layer")],
        "layer_scale": 1e-5 if "blocks.0.ls1.gamma" in shapes else None,
        "qk_norm": "blocks.0.attn.q_norm.weight" in shapes,
        "norm_after_pooling": norm_after_pooling,
    }


def _has_prefix_positions(positions, prefix_tokens, size, patch_size, options):
    """Whether the position table has rows for the tokens before the patches."""
    if not prefix_tokens or options.get("no_embed_class") is not None:
        return not options.get("no_embed_class", False)
    if size:
        height, width = size if isinstance(size, tuple) else (size, size)
        return positions != (height // patch_size[0]) * (width // patch_size[1])
    return math.isqrt(positions) ** 2 != positions


def _preprocessing_fields(config):
    """Fields of `Preprocessing` of a pretrained_cfg."""
    fields = {name: tuple(config[name]) for name in ("mean", "std") if name in config}
    if "crop_pct" in config:
        fields["crop_fraction"] = config["crop_pct"]
    if config.get("crop_mode") == "squash":
        fields["resize"] = "squash"
    if config.get("interpolation") in PILLOW_FILTERS.values():
        fields["interpolation"] = config["interpolation"]
    return fields
