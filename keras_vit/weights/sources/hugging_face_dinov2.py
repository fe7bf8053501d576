"""DINOv2 of Hugging Face transformers, with and without registers: .safetensors files with config.json."""

from dataclasses import replace

from keras_vit.images.pixel_range import IMAGENET
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors, read_json
from keras_vit.weights.naming import Naming, Source
from keras_vit.weights.sources import hugging_face
from keras_vit.weights.sources.arrays import (
    kernel_shape,
    num_blocks,
    read_arguments,
    respell,
    square_image_size,
    token_with_position,
    with_derived,
)
from keras_vit.weights.sources.hugging_face import BLOCK, OUR_BLOCK

TOKEN, POSITIONS, REGISTERS = (f"embeddings.{x}" for x in ("cls_token", "position_embeddings", "register_tokens"))
VIT = hugging_face.HUGGING_FACE.naming
# models/dinov2 and models/dinov2_with_registers, without the leading "dinov2.".
DINOV2 = Source(
    "hugging_face_dinov2",
    "Hugging Face transformers' DINOv2",
    Naming(
        {
            **VIT.layers,
            f"{OUR_BLOCK}/norm_attention": (f"{BLOCK}.norm1.",),
            f"{OUR_BLOCK}/scale_attention": (f"{BLOCK}.layer_scale1.lambda1",),
            f"{OUR_BLOCK}/norm_mlp": (f"{BLOCK}.norm2.",),
            f"{OUR_BLOCK}/mlp/hidden": (f"{BLOCK}.mlp.fc1.",),
            f"{OUR_BLOCK}/mlp/out": (f"{BLOCK}.mlp.fc2.",),
            f"{OUR_BLOCK}/scale_mlp": (f"{BLOCK}.layer_scale2.lambda1",),
        },
        VIT.leaves,
        {**VIT.weights, "register_tokens/tokens": REGISTERS},
        "torch",
    ),
    gelu="erf",
    epsilon=1e-6,
    resample="bicubic",
    preprocessing={"antialias": True, **IMAGENET},
)
SPELLINGS = (
    (r"^(dinov2|dinov2_with_registers)\.", ""),
    (r"\.mlp\.weights_in\.", ".mlp.fc1."),
    (r"\.mlp\.weights_out\.", ".mlp.fc2."),
)


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a DINOv2 of transformers."""
    return hugging_face.recognizes(tensors) and any(name.endswith(".layer_scale1.lambda1") for name in tensors.shapes)


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file, with the JSON files in its folder. `image_size` is ignored.

    The token of masked patches, for training only, is omitted.
    """
    tensors = read_arguments(_plain_arrays, tensors.renamed(lambda name: respell(name, SPELLINGS)))
    arguments = read_arguments(_arguments, tensors, read_json(tensors.path.with_name("config.json")))
    preprocessor = hugging_face.read_preprocessor(tensors)
    # modeling_dinov2_with_registers.py smooths positions when it shrinks their grid, modeling_dinov2.py does not.
    source = replace(DINOV2, resample="bicubic_antialias") if arguments["register_tokens"] else DINOV2
    fields, size = hugging_face.preprocessing_fields(preprocessor), hugging_face.image_size(preprocessor)
    # Models of 518 pixels are published with a preprocessor for 224: transformers resamples their positions.
    fits = size and not any(size % side for side in arguments["patch_size"])
    return Checkpoint(tensors, source, arguments, fields, size if fits else None)


def _plain_arrays(tensors):
    derived = token_with_position(tensors, TOKEN, POSITIONS) if REGISTERS in tensors else {}
    return with_derived(tensors, derived, without=["embeddings.mask_token"])


def _arguments(tensors, config):
    shapes = tensors.shapes
    width, _, patch_height, patch_width = kernel_shape(tensors, hugging_face.PATCHES)
    hugging_face.check_biases(tensors, config)
    registers = shapes.get(REGISTERS, (1, 0))[1]
    patch_size, num_classes = (patch_height, patch_width), shapes.get("classifier.bias", (0,))[0]
    positions, mlp_dim = shapes[POSITIONS][1], shapes["encoder.layer.0.mlp.fc2.weight"][1]
    image_size = config.get("image_size") or square_image_size(positions - (not registers), patch_size)
    return {
        "image_size": tuple(image_size) if isinstance(image_size, list) else image_size,
        "patch_size": patch_size,
        "depth": num_blocks(shapes, r"encoder\.layer\.(\d+)\."),
        "width": width,
        "mlp_dim": mlp_dim,
        "num_heads": config.get("num_attention_heads"),
        **hugging_face.head_arguments(num_classes, config),
        "pooling": "token_and_gap" if num_classes else "token",
        "class_token": True,
        "register_tokens": registers,
        "prefix_positions": not registers,
        "gelu": hugging_face.known_gelu(tensors, config),
        "swiglu": shapes["encoder.layer.0.mlp.fc1.bias"][0] == 2 * mlp_dim,
        "epsilon": config.get("layer_norm_eps", 1e-6),
        "layer_scale": 1e-5,
    }
