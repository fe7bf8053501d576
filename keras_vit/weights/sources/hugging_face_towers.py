"""The image towers of CLIP and SigLIP in Hugging Face transformers: .safetensors files with config.json.

The projection of CLIP to the space that it shares with texts, which has no bias, becomes the head.
"""

import re

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors, read_json
from keras_vit.weights.naming import Naming, Source
from keras_vit.weights.sources import hugging_face
from keras_vit.weights.sources.arrays import (
    covered_size,
    kernel_shape,
    num_blocks,
    read_arguments,
    reshaped,
    split,
    square_image_size,
    with_derived,
    zeros,
)
from keras_vit.weights.sources.hugging_face import OUR_BLOCK, TORCH_LEAVES

BLOCK = "encoder.layers.{i}"
TOWER = "vision_model."
PATCHES, TOKEN, POSITIONS = (
    f"embeddings.{x}" for x in ("patch_embedding.weight", "class_embedding", "position_embedding.weight")
)
PATCHES_BIAS = PATCHES.replace("weight", "bias")
JOINED, HEAD, CLASSIFIER = "head.attention.in_proj_", "visual_projection.", "classifier."
# models/clip and models/siglip, without the leading "vision_model.".
TOWERS = Source(
    "hugging_face_towers",
    "Hugging Face transformers' CLIP and SigLIP (image towers)",
    Naming(
        {
            "patch_embedding/projection": ("embeddings.patch_embedding.",),
            "encoder/initial_norm": ("pre_layrnorm.",),
            f"{OUR_BLOCK}/norm_attention": (f"{BLOCK}.layer_norm1.",),
            f"{OUR_BLOCK}/attention/qkv": tuple(f"{BLOCK}.self_attn.{x}_proj." for x in "qkv"),
            f"{OUR_BLOCK}/attention/out": (f"{BLOCK}.self_attn.out_proj.",),
            f"{OUR_BLOCK}/norm_mlp": (f"{BLOCK}.layer_norm2.",),
            f"{OUR_BLOCK}/mlp/hidden": (f"{BLOCK}.mlp.fc1.",),
            f"{OUR_BLOCK}/mlp/out": (f"{BLOCK}.mlp.fc2.",),
            "encoder/norm": ("post_layernorm.",),
            "pooling/query": ("head.attention.q_proj.",),
            "pooling/key": ("head.attention.k_proj.",),
            "pooling/value": ("head.attention.v_proj.",),
            "pooling/out": ("head.attention.out_proj.",),
            "pooling/norm": ("head.layernorm.",),
            "pooling/mlp/hidden": ("head.mlp.fc1.",),
            "pooling/mlp/out": ("head.mlp.fc2.",),
            "head": (HEAD,),
        },
        TORCH_LEAVES,
        {"positions/table": POSITIONS, "class_token/token": TOKEN, "pooling/probe": "head.probe"},
        "torch",
    ),
    resample="bicubic",
    preprocessing={"antialias": True, "interpolation": "bicubic"},
)


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds the image tower of a CLIP or SigLIP of transformers, alone or beside that of texts."""
    return PATCHES in tensors or TOWER + PATCHES in tensors


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file, with the JSON files in its folder. `image_size` is ignored.

    What belongs to the tower of texts is omitted.
    """
    config = read_json(tensors.path.with_name("config.json"))
    tensors = read_arguments(_plain_arrays, _tower(tensors))
    arguments = read_arguments(_arguments, tensors, {**config, **config.get("vision_config", {})})
    preprocessor = hugging_face.read_preprocessor(tensors)
    fields = hugging_face.preprocessing_fields(preprocessor)
    if arguments["class_token"] and not isinstance(preprocessor.get("size"), dict):
        fields["resize"] = "shortest"  # CLIPImageProcessor; its older files state one number
    return Checkpoint(tensors, TOWERS, arguments, fields)


def _tower(tensors):
    """The arrays of the image tower and its head, without the prefix of models that also read texts."""
    kept = (HEAD, CLASSIFIER) if PATCHES not in tensors else ("",)
    others = [name for name in tensors.shapes if not name.startswith((*kept, TOWER)) or name.endswith("position_ids")]
    tensors = with_derived(tensors, {}, without=others)
    return tensors.renamed(lambda name: re.sub(f"^{CLASSIFIER}", HEAD, name.removeprefix(TOWER)))


def _plain_arrays(tensors):
    """Arrays with the shapes of a `VisionTransformer`, and zeros for biases that CLIP does not have."""
    shapes, is_clip, is_classifier = tensors.shapes, TOKEN in tensors, HEAD + "bias" in tensors
    if is_classifier and is_clip:
        raise ValueError(
            f"{tensors.path} is a CLIPForImageClassification, which averages patches that are not normalized. This is "
            "not supported: load the CLIP that it was trained from, and train a new head."
        )
    rows, width = shapes[POSITIONS]
    derived = {POSITIONS: reshaped(tensors, POSITIONS, 1, rows, width)}
    if is_clip:
        derived |= {TOKEN: reshaped(tensors, TOKEN, 1, 1, width), PATCHES_BIAS: zeros(width)}
    if HEAD + "weight" in tensors and not is_classifier:
        derived[HEAD + "bias"] = zeros(shapes[HEAD + "weight"][0])
    joined = [name for name in shapes if name.startswith(JOINED)]
    for name in joined:
        derived |= split(tensors, name, [name.replace("in_proj_", f"{part}_proj.") for part in "qkv"])
    # A SiglipForImageClassification averages the patches, and has its pooling unused beside that.
    unused = [name for name in shapes if is_classifier and name.startswith("head.")]
    kept = {name: array for name, array in derived.items() if not (is_classifier and name.startswith("head."))}
    return with_derived(tensors, kept, without=[*joined, *unused])


def _arguments(tensors, config):
    shapes = tensors.shapes
    width, _, *patch_size = kernel_shape(tensors, PATCHES)
    has_token, has_initial_norm = TOKEN in shapes, "pre_layrnorm.weight" in shapes
    num_classes, size = shapes.get(HEAD + "bias", (0,))[0], config.get("image_size")
    pooling = "token" if has_token else "map" if "head.probe" in shapes else "gap"
    return {
        "image_size": covered_size(size, patch_size) or square_image_size(shapes[POSITIONS][1] - has_token, patch_size),
        "patch_size": tuple(patch_size),
        "depth": num_blocks(shapes, r"encoder\.layers\.(\d+)\."),
        "width": width,
        "mlp_dim": shapes["encoder.layers.0.mlp.fc1.bias"][0],
        # transformers omits values in config.json that are its defaults.
        "num_heads": config.get("num_attention_heads", 12 if config else None),
        **hugging_face.head_arguments(num_classes, {} if has_token else config),
        "pooling": pooling,
        "class_token": has_token,
        "gelu": hugging_face.known_gelu(tensors, config, "quick_gelu" if has_token else "gelu_pytorch_tanh"),
        "epsilon": config.get("layer_norm_eps", 1e-5 if has_token else 1e-6),
        "norm_before_encoder": has_initial_norm,
        **({"projection": num_classes > 0} if has_token else {}),
    }
