"""DINOv3 of Hugging Face transformers: .safetensors files with config.json and preprocessor_config.json."""

import re
from dataclasses import replace

from keras_vit.images.pixel_range import IMAGENET
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors, read_json
from keras_vit.weights.naming import Naming, Source
from keras_vit.weights.sources import hugging_face
from keras_vit.weights.sources.arrays import (
    covered_size,
    kernel_shape,
    num_blocks,
    read_arguments,
    respell,
    with_derived,
    zeros,
)

OUR_BLOCK, BLOCK = hugging_face.OUR_BLOCK, "layer.{i}"
PATCHES, TOKENS = "embeddings.patch_embeddings.weight", "embeddings.register_tokens"
VIT = hugging_face.HUGGING_FACE.naming
# models/dinov3_vit, as its files are published.
DINOV3 = Source(
    "hugging_face_dinov3",
    "Hugging Face transformers' DINOv3",
    Naming(
        {
            "patch_embedding/projection": ("embeddings.patch_embeddings.",),
            f"{OUR_BLOCK}/norm_attention": (f"{BLOCK}.norm1.",),
            f"{OUR_BLOCK}/attention/qkv": tuple(f"{BLOCK}.attention.{x}_proj." for x in "qkv"),
            f"{OUR_BLOCK}/attention/out": (f"{BLOCK}.attention.o_proj.",),
            f"{OUR_BLOCK}/scale_attention": (f"{BLOCK}.layer_scale1.lambda1",),
            f"{OUR_BLOCK}/norm_mlp": (f"{BLOCK}.norm2.",),
            f"{OUR_BLOCK}/mlp/hidden": (f"{BLOCK}.mlp.up_proj.",),
            f"{OUR_BLOCK}/mlp/out": (f"{BLOCK}.mlp.down_proj.",),
            f"{OUR_BLOCK}/scale_mlp": (f"{BLOCK}.layer_scale2.lambda1",),
            "encoder/norm": ("norm.",),
        },
        VIT.leaves,
        {"class_token/token": "embeddings.cls_token", "register_tokens/tokens": TOKENS},
        "torch",
    ),
    gelu="erf",
    epsilon=1e-5,
    preprocessing={"antialias": True, **IMAGENET},
)
GATED_HIDDEN = (f"{BLOCK}.mlp.gate_proj.", f"{BLOCK}.mlp.up_proj.")
PROJECTIONS = re.compile(r"layer\.\d+\.(attention|mlp)\.\w+_proj\.weight")
# Modules have this prefix, files do not.
SPELLINGS = ((r"^model\.layer\.", "layer."),)


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a DINOv3 of transformers."""
    return PATCHES in tensors and any(name.endswith("layer.0.attention.q_proj.weight") for name in tensors.shapes)


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file, with the JSON files in its folder. `image_size` is ignored.

    The token of masked patches, for training only, is omitted.
    """
    tensors = read_arguments(_plain_arrays, tensors.renamed(lambda name: respell(name, SPELLINGS)))
    config = read_json(tensors.path.with_name("config.json"))
    arguments = read_arguments(_arguments, tensors, config)
    preprocessor = hugging_face.read_preprocessor(tensors)
    source = DINOV3
    if arguments["swiglu"]:
        layers = DINOV3.naming.layers | {f"{OUR_BLOCK}/mlp/hidden": GATED_HIDDEN}
        source = replace(DINOV3, naming=replace(DINOV3.naming, layers=layers))
    fields = hugging_face.preprocessing_fields(preprocessor)
    return Checkpoint(tensors, source, arguments, fields, states_size=bool(config.get("image_size")))


def _plain_arrays(tensors):
    """With biases of zeros for the projections that have none, such as the keys'."""
    kernels = filter(PROJECTIONS.fullmatch, tensors.shapes)
    biases = {name.removesuffix("weight") + "bias": zeros(tensors.shapes[name][0]) for name in kernels}
    without = ["embeddings.mask_token", *[TOKENS] * (tensors.shapes[TOKENS][1] == 0)]
    return with_derived(tensors, {name: x for name, x in biases.items() if name not in tensors}, without)


def _arguments(tensors, config):
    shapes = tensors.shapes
    width, _, *patch_size = kernel_shape(tensors, PATCHES)
    is_gated = "layer.0.mlp.gate_proj.weight" in shapes
    activation = config.get("hidden_act", "silu")
    if is_gated and activation != "silu":
        raise ValueError(f"{tensors.path}: hidden_act of gated MLPs is {activation!r} in config.json. Supported: silu")
    return {
        "image_size": covered_size(config.get("image_size"), patch_size),
        "patch_size": tuple(patch_size),
        "depth": num_blocks(shapes, r"layer\.(\d+)\."),
        "width": width,
        "mlp_dim": shapes["layer.0.mlp.down_proj.weight"][1],
        "num_heads": config.get("num_attention_heads"),
        "num_classes": 0,
        "pooling": "token",
        "class_token": True,
        "register_tokens": shapes.get(TOKENS, (1, 0))[1],
        "prefix_positions": False,
        "position_embedding": "rotary",
        "rotary_theta": config.get("rope_theta", 100.0),
        "gelu": "erf" if is_gated else hugging_face.known_gelu(tensors, config),
        "swiglu": is_gated,
        "epsilon": config.get("layer_norm_eps", 1e-5),
        "layer_scale": config.get("layerscale_value", 1.0),
    }
