"""ViT, DeiT, DINO, DINOv2, MAE, CLIP, SigLIP and hybrids of timm: .safetensors files with config.json.

Also DINOv2 of its authors, saved as .safetensors: all but a few of its names are timm's.
"""

import math
import re
from dataclasses import replace

from keras_vit.images.pixel_range import IMAGENET
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors, read_json
from keras_vit.weights.naming import Naming, ResNetNaming, Source
from keras_vit.weights.sources.arrays import (
    covered_size,
    kernel_shape,
    num_blocks,
    read_arguments,
    resnet_stages,
    resnet_stride,
    respell,
    split,
    square_image_size,
    token_with_position,
    with_derived,
    zero_biases,
    zeros,
)
from keras_vit.weights.sources.hugging_face import PILLOW_FILTERS, TORCH_LEAVES

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
            "encoder/initial_norm": ("norm_pre.",),
            "encoder/norm": ("norm.",),
            "pooling/query": ("attn_pool.q.",),
            "pooling/key": ("attn_pool.k.",),
            "pooling/value": ("attn_pool.v.",),
            "pooling/out": ("attn_pool.proj.",),
            "pooling/norm": ("attn_pool.norm.",),
            "pooling/mlp/hidden": ("attn_pool.mlp.fc1.",),
            "pooling/mlp/out": ("attn_pool.mlp.fc2.",),
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
            "pooling/probe": "attn_pool.latent",
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
# facebookresearch/dinov2, dinov2/models/vision_transformer.py. Evaluation: dinov2/data/transforms.py.
DINOV2 = replace(
    TIMM,
    name="dinov2",
    title="facebookresearch/dinov2",
    resample="bicubic_offset",
    preprocessing={**TIMM.preprocessing, "crop_fraction": 0.875, **IMAGENET},
)
DINOV2_MASK, DINOV2_REGISTERS = "mask_token", "register_tokens"
DINOV2_SPELLINGS = (
    (r"\.mlp\.w12\.", ".mlp.fc1."),
    (r"\.mlp\.w3\.", ".mlp.fc2."),
    (f"^{DINOV2_REGISTERS}$", "reg_token"),
)
# Parts of the names of models that differ from the paper's.
OTHER_BLOCKS = "blocks or activations of its own"
PERCEPTION_ENCODER = "rotary positions beside a pooling of other heads, or no last normalization"
OTHER_ARCHITECTURES = {
    **dict.fromkeys(("_rpn_", "_18x2_", "_36x1_", "_xp_", "wee_", "_miil", "radio", "intern", "tips"), OTHER_BLOCKS),
    "vit_pe_": PERCEPTION_ENCODER,
    "sapiens": "keys and values that several heads of queries share",
    "beit": "relative positions",
    "naflex": "grids of any shape at run time",
}
POOLINGS = {"avg": "gap", "token": "token", "map": "map", "": "none"}
# Options of model_args that change the outputs, but neither names nor shapes of arrays, and their only value here.
ONLY = {"norm_layer": "layernorm", "mlp_layer": None, "block_fn": None, "attn_layer": None}
GELUS = {None: "erf", "gelu": "erf", "gelu_tanh": "tanh", "quick_gelu": "quick"}
# Models whose definition, not their config.json, has another GELU than "erf".
GELU_OF_NAMES = (
    (r"_quickgelu_", "quick"),
    (r"_patch32_siglip|_large_patch16_siglip(_gap)?_512|_so400m_patch16_siglip|_giantopt_", "tanh"),
)
KEYS_AND_VALUES = "attn_pool.kv."
DECODER = "decoder_embed.weight"


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a Vision Transformer of timm, or a DINOv2 under its authors' names."""
    return PATCHES in tensors


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file, with config.json in its folder. `image_size` overrides that of config.json."""
    if (DINOV2_MASK in tensors or DINOV2_REGISTERS in tensors) and DECODER not in tensors:  # MAE has a mask token, too
        return _read_dinov2(tensors)
    config = read_config(tensors, image_size)
    # The root of a hybrid without stages has no "stem" in its names.
    tensors = tensors.renamed(lambda name: re.sub(STEM, rf"{BACKBONE}.stem.\1.", name))
    tensors = read_arguments(plain_arrays, tensors)
    arguments = read_arguments(model_arguments, tensors, config)
    # timm gives CLIP's projection a bias of zeros, which no trained classifier has.
    if "norm_pre.weight" in tensors and "head.bias" in tensors:
        arguments["projection"] = not tensors.read("head.bias").any()
    return checkpoint(tensors, arguments, config)


def read_config(tensors: Tensors, image_size) -> dict:
    """The config.json beside a file, or {}; `image_size` overrides its own."""
    config = read_json(tensors.path.with_name("config.json"))
    if image_size is not None:
        config = {**config, "model_args": {**config.get("model_args", {}), "img_size": image_size}}
    return config


def checkpoint(tensors: Tensors, arguments: dict, config: dict) -> Checkpoint:
    """The checkpoint of `plain_arrays`, model arguments and the content of config.json."""
    fields, is_guess = _preprocessing_fields(config.get("pretrained_cfg", {})), _prefix_is_guess(arguments, config)
    is_guess = is_guess and "pos_embed" in tensors
    states_size = bool(_stated_size(config))
    return Checkpoint(tensors, TIMM, arguments, fields, prefix_is_guess=is_guess, states_size=states_size)


def _read_dinov2(tensors):
    """A DINOv2 of its authors, without the token of masked patches, which is for training only."""
    tensors = read_arguments(_dinov2_arrays, tensors)
    arguments = read_arguments(model_arguments, tensors, {})
    # DinoVisionTransformer's interpolate_offset and interpolate_antialias, as dinov2/hub/backbones.py sets them.
    source = replace(DINOV2, resample="bicubic_antialias") if arguments["register_tokens"] else DINOV2
    return Checkpoint(tensors, source, arguments, {})


def _dinov2_arrays(tensors):
    derived = token_with_position(tensors, "cls_token", "pos_embed") if DINOV2_REGISTERS in tensors else {}
    return with_derived(tensors, derived, without=[DINOV2_MASK]).renamed(lambda name: respell(name, DINOV2_SPELLINGS))


def plain_arrays(tensors: Tensors) -> Tensors:
    """The arrays that models have here.

    With biases of zeros for CLIP's patches and models of `qkv_bias=False`, which have none, keys and values of SigLIP's
    pooling, and without the decoder of a masked autoencoder (facebookresearch/mae, models_mae.py).
    """
    arrays = {}
    if "norm_pre.weight" in tensors and "patch_embed.proj.bias" not in tensors:
        arrays["patch_embed.proj.bias"] = zeros(tensors.shapes[PATCHES][0])
    joined = [name for name in tensors.shapes if name.startswith(KEYS_AND_VALUES)]
    for name in joined:
        arrays |= split(tensors, name, [name.replace("kv", part) for part in "kv"])
    arrays |= zero_biases(tensors, r"blocks\.\d+\.attn\.qkv\.weight")
    decoder = [name for name in tensors.shapes if name.startswith(("decoder_", "mask_token"))]
    return with_derived(tensors, arrays, without=joined + (decoder if DECODER in tensors else []))


def check_supported(tensors: Tensors, architecture: str):
    """Raises a ValueError, with the reason, for models that differ from the paper's in more than their options."""
    reason = next((reason for part, reason in OTHER_ARCHITECTURES.items() if part in architecture), None)
    if reason:
        raise ValueError(f"{tensors.path} is {architecture} of timm, which is not supported: it has {reason}.")
    if "norm_pre.weight" in tensors and "attn_pool.latent" in tensors:
        raise ValueError(
            f"{tensors.path} is a Perception Encoder, which is not supported: it has {PERCEPTION_ENCODER}."
        )


def model_arguments(tensors: Tensors, config: dict, rotary: bool = False) -> dict:
    """Arguments of the `VisionTransformer` of `plain_arrays`, with the content of timm's config.json, or {}.

    With `rotary` positions, there may be no table of positions.
    """
    shapes = tensors.shapes
    architecture, options = config.get("architecture", ""), config.get("model_args", {})
    check_supported(tensors, architecture)
    _check_options(tensors, options)
    width, _, patch_height, patch_width = kernel_shape(tensors, PATCHES)
    has_token, has_second_token = "cls_token" in shapes, "dist_token" in shapes
    registers = shapes.get("reg_token", (1, 0))[1]
    prefix_tokens = has_token + has_second_token + registers
    stages = resnet_stages(shapes, f"{BACKBONE}.stem.conv.weight", UNIT)
    stride = resnet_stride(stages)
    patch_size = (patch_height * stride, patch_width * stride)
    size = covered_size(_stated_size(config), patch_size)
    prefix_positions = True
    if "pos_embed" in shapes or not rotary:
        positions = shapes["pos_embed"][1]
        prefix_positions = _has_prefix_positions(positions, prefix_tokens, size, patch_size, options)
        size = size or square_image_size(positions - prefix_tokens * prefix_positions, patch_size)
    mlp_dim, has_initial_norm = shapes["blocks.0.mlp.fc2.weight"][1], "norm_pre.weight" in shapes
    swiglu = shapes["blocks.0.mlp.fc1.bias"][0] == 2 * mlp_dim
    return {
        "image_size": size,
        "patch_size": patch_size,
        "depth": num_blocks(shapes, r"blocks\.(\d+)\."),
        "width": width,
        "mlp_dim": mlp_dim,
        "num_heads": options.get("num_heads") or _unusual_num_heads(architecture, width, swiglu),
        "num_classes": shapes.get("head.bias", (0,))[0],
        "pooling": _pooling(tensors, config),
        "pool_prefix_tokens": options.get("pool_include_prefix", architecture.startswith("test_vit3")),
        "class_token": has_token,
        "distillation": has_second_token,
        "register_tokens": registers,
        "prefix_positions": prefix_positions,
        "resnet_stages": stages,
        "resnet_form": "v1" if stages is None else "timm",
        "gelu": _gelu(tensors, architecture, options),
        "swiglu": swiglu,
        # Of all CLIP models of timm, unlike others with `pre_norm`.
        **({"epsilon": 1e-5} if has_initial_norm and ("clip" in architecture or "pre_norm" not in options) else {}),
        "layer_scale": 1e-5 if "blocks.0.ls1.gamma" in shapes else None,
        "qk_norm": "blocks.0.attn.q_norm.weight" in shapes,
        "norm_before_encoder": has_initial_norm,
        "norm_after_pooling": "fc_norm.weight" in shapes,
    }


def _unusual_num_heads(architecture, width, swiglu):
    """The number of heads where models of this width have different ones; None where the width determines it."""
    if "base_patch16_gap" in architecture or "giantopt" in architecture:
        return 16
    if width in (64, 96):  # test_vit, test_vit2 and test_vit3, the only ones of these widths
        return {64: 2, 96: 3}[width]
    return 24 if width == 1536 and swiglu else None  # DINOv2's g/14


def _pooling(tensors, config):
    default = "map" if "attn_pool.latent" in tensors else "token"
    if default == "token" and ("fc_norm.weight" in tensors or "cls_token" not in tensors):
        default = "avg"
    stated = config.get("model_args", {}).get("global_pool"), config.get("global_pool")
    pooling = next((value for value in stated if value is not None), default)
    return _known(tensors, "global_pool", pooling, POOLINGS)


def _check_options(tensors, options):
    """Raises a ValueError for options with which other outputs would be computed from the same arrays."""
    for name, value in options.items():
        if name in ONLY and value not in (None, ONLY[name]):
            raise ValueError(f"{tensors.path}: {name} is {value!r} in config.json, which is not supported. Use timm.")


def _gelu(tensors, architecture, options):
    activation = options.get("act_layer")
    if activation is not None:
        return _known(tensors, "act_layer", activation, GELUS)
    return next((gelu for pattern, gelu in GELU_OF_NAMES if re.search(pattern, architecture)), GELUS[None])


def _known(tensors, name, value, known):
    if value not in known:
        names = ", ".join(filter(None, known))
        raise ValueError(f"{tensors.path}: {name} is {value!r} in config.json. Supported: {names}")
    return known[value]


def _prefix_is_guess(arguments, config):
    has_prefix = arguments["class_token"] or arguments["register_tokens"]
    return bool(has_prefix) and not (_stated_size(config) or "no_embed_class" in config.get("model_args", {}))


def _stated_size(config):
    return config.get("model_args", {}).get("img_size") or config.get("pretrained_cfg", {}).get("input_size", [])[1:]


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
