"""Vision Transformers of google-research/vision_transformer and big_vision: .npz files of JAX arrays."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors
from keras_vit.weights.naming import Naming, ResNetNaming, Source
from keras_vit.weights.sources.arrays import (
    check_values,
    kernel_shape,
    named_arrays,
    num_blocks,
    read_arguments,
    resnet_stages,
    resnet_stride,
    square_image_size,
)

OUR_BLOCK = "encoder/block_{i}"
BLOCK = "Transformer/encoderblock_{i}"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_0"
MAP_HEAD = "MAPHead_0"
POSITIONS = "Transformer/posembed_input/pos_embedding"
LAYERS = {
    "patch_embedding/projection": ("embedding/",),
    f"{OUR_BLOCK}/norm_attention": (f"{BLOCK}/LayerNorm_0/",),
    f"{OUR_BLOCK}/attention/qkv": tuple(f"{ATTENTION}/{kind}/" for kind in ("query", "key", "value")),
    f"{OUR_BLOCK}/attention/out": (f"{ATTENTION}/out/",),
    f"{OUR_BLOCK}/norm_mlp": (f"{BLOCK}/LayerNorm_1/",),
    f"{OUR_BLOCK}/mlp/hidden": (f"{BLOCK}/MlpBlock_0/Dense_0/",),
    f"{OUR_BLOCK}/mlp/out": (f"{BLOCK}/MlpBlock_0/Dense_1/",),
    "encoder/norm": ("Transformer/encoder_norm/",),
    "pre_logits": ("pre_logits/",),
    "head": ("head/",),
}
MAP_LAYERS = {
    **{
        f"pooling/{kind}": (f"{MAP_HEAD}/MultiHeadDotProductAttention_0/{kind}/",)
        for kind in ("query", "key", "value", "out")
    },
    "pooling/norm": (f"{MAP_HEAD}/LayerNorm_0/",),
    "pooling/mlp/hidden": (f"{MAP_HEAD}/MlpBlock_0/Dense_0/",),
    "pooling/mlp/out": (f"{MAP_HEAD}/MlpBlock_0/Dense_1/",),
}
LEAVES = {"gamma": "scale", "beta": "bias", "kernel": "kernel", "bias": "bias"}
UNIT_LAYERS = {layer: layer for layer in ("conv1", "gn1", "conv2", "gn2", "conv3", "gn3", "conv_proj")}
# The ResNet of hybrids, and of BiT in big_vision's models/bit.py.
RESNET = ResNetNaming(
    {"root/conv_root": "conv_root", "root/gn_root": "gn_root", "head": "head"},
    {**UNIT_LAYERS, "gn_proj": "gn_proj"},
    "block{block}/unit{unit}/{layer}",
    leaves=LEAVES,
)

# vit_jax/models_vit.py.
VIT_JAX = Source(
    "vit_jax",
    "google-research/vision_transformer",
    Naming(LAYERS, LEAVES, {"positions/table": POSITIONS, "class_token/token": "cls"}, "heads", RESNET),
    gelu="tanh",
    epsilon=1e-6,
)
# resize_small(256)|central_crop(224) of its configurations.
BIG_VISION_PREPROCESSING = {"resize": "shortest_area", "crop_fraction": 0.875}
# resize(224) of configs/proj/image_text/common.py.
SIGLIP_PREPROCESSING = {"resize": "squash", "crop_fraction": 1.0}
# models/vit.py: positions of patches only, attention pooling.
BIG_VISION = Source(
    "big_vision",
    "google-research/big_vision",
    Naming(
        {**LAYERS, **MAP_LAYERS},
        LEAVES,
        {"positions/table": "pos_embedding", "class_token/token": "cls", "pooling/probe": f"{MAP_HEAD}/probe"},
        "heads",
    ),
    gelu="tanh",
    epsilon=1e-6,
    preprocessing=BIG_VISION_PREPROCESSING,
)


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a Vision Transformer of either project."""
    return "embedding/kernel" in linen_arrays(tensors)


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file. `image_size` is ignored. Of a SigLIP only the image tower is read."""
    fields = SIGLIP_PREPROCESSING if is_tower(tensors) else {}
    tensors = linen_arrays(tensors)
    if fields and len(tensors.shapes["embedding/kernel"]) == 2:
        raise ValueError(
            f"{tensors.path} is a NaFlex model, whose images have grids of any shape. This is not supported: use a "
            "SigLIP 2 of one size, such as big_vision/siglip2/siglip2_b16_224."
        )
    source, arguments = VIT_JAX if POSITIONS in tensors else BIG_VISION, read_arguments(_arguments, tensors)
    if fields:  # a tower, whose head projects to the space of the other one
        arguments["projection"] = arguments["num_classes"] > 0
    return Checkpoint(tensors, source, arguments, fields)


def _arguments(tensors):
    shapes = tensors.shapes
    patch_height, patch_width, _, width = kernel_shape(tensors, "embedding/kernel")
    depth = num_blocks(shapes, r"Transformer/encoderblock_(\d+)/")
    block = BLOCK.format(i=0)
    heads = shapes[f"{block}/MultiHeadDotProductAttention_0/query/bias"][0]
    has_token, has_map = "cls" in shapes, any(name.startswith(f"{MAP_HEAD}/") for name in shapes)
    stages = resnet_stages(shapes)
    stride = resnet_stride(stages)
    positions = shapes.get(POSITIONS, shapes.get("pos_embedding"))
    patch_size = (patch_height * stride, patch_width * stride)
    size = None
    if positions is not None:
        size = square_image_size(positions[1] - (has_token and POSITIONS in shapes), patch_size)
    return {
        "image_size": size,
        "patch_size": patch_size,
        "depth": depth,
        "width": width,
        "mlp_dim": shapes[f"{block}/MlpBlock_0/Dense_0/bias"][0],
        "num_heads": heads,
        "num_classes": shapes.get("head/bias", (0,))[0],
        "pooling": "map" if has_map else "token" if has_token else "gap",
        "class_token": has_token,
        "representation_size": shapes.get("pre_logits/bias", (None,))[0],
        "position_embedding": "sincos_2d" if positions is None else "learned_1d",
        "prefix_positions": POSITIONS in shapes,
        "resnet_stages": stages,
    }


def writers(model, path: Path) -> dict[Path, Callable[[Path], object]]:
    """The .npz file of a VisionTransformer, with the function that writes it.

    It is a file of vision_transformer, or of big_vision where only that can store the model.
    """
    config = model.config
    file = "An .npz file"
    check_values(
        model,
        file,
        position_embedding=("learned_1d", "sincos_2d"),
        position_placement=("stem",),
        axial=(False,),
        register_tokens=(0,),
        norm_before_encoder=(False,),
        swiglu=(False,),
        gelu=("tanh",),
        epsilon=(1e-6,),
    )
    if config.num_classes:
        head_kinds = {"pooling": ("token", "gap", "map"), "multi_label": (False,), "projection": (False,)}
        check_values(model, f"{file} with a head", **head_kinds)
    _check_grid(model)
    if config.pooling == "token_and_gap":  # without a head, too: readers would take the class token
        check_values(model, file, pooling=("token", "gap", "map", "none"))
    if config.pooling in ("gap", "map"):
        check_values(model, f"{file} with pooling={config.pooling!r}", class_token=(False,))
    if config.resnet_stages is not None:
        check_values(model, file, resnet_form=("v1",))
    only_big_vision = config.pooling == "map" or config.position_embedding == "sincos_2d"
    only_big_vision |= not config.prefix_positions
    if only_big_vision:
        if config.class_token:
            check_values(model, f"{file} of big_vision", prefix_positions=(False,))
        arrays = named_arrays(model, BIG_VISION.naming)
    else:  # published files have the names from before linen, and readers such as timm's know no others
        arrays = named_arrays(model, VIT_JAX.naming, pre_linen_name)
    return {path: lambda target: np.savez(target, **arrays)}  # type: ignore[arg-type]


def _check_grid(model):
    """Raises a ValueError if readers would take the grid of positions for a square."""
    patches = model.grid[0] * model.grid[1]
    learned = model.config.position_embedding == "learned_1d"
    if learned and model.grid[0] != model.grid[1] and math.isqrt(patches) ** 2 == patches:
        raise ValueError(
            f"An .npz file cannot store that {patches} positions are a grid of {model.grid}: readers would take it for "
            "a square. Save the model as .keras."
        )


# Before its linen API, Flax numbered all submodules of a block in one sequence; linen numbers each kind from 0.
PRE_LINEN = {
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "LayerNorm_2": "LayerNorm_1",
    "MlpBlock_3": "MlpBlock_0",
}
_PREFIXES = ("params/", "opt/target/", "target/")
# The image tower in files of SigLIP, beside which are that of texts, a temperature and a bias.
_TOWERS = ("params/img/", "img/")
_STACKED = "Transformer/encoderblock/"


def linen_arrays(tensors: Tensors) -> Tensors:
    """The model's arrays under linen names, one for each block.

    Removes the prefixes of training states and the arrays of optimizers, renames what was written before linen, splits
    the stacked arrays of big_vision's scanned models, and drops the leading axes of (1, 1, 1, C) normalizations.
    """
    prefix = next((p for p in (*_TOWERS, *_PREFIXES) if any(name.startswith(p) for name in tensors.shapes)), "")
    kept = {name: shape for name, shape in tensors.shapes.items() if name.startswith(prefix)}
    tensors = Tensors(tensors.path, kept, tensors.read)

    def rename(name):
        name = without_counter(name.removeprefix(prefix))
        return "/".join(PRE_LINEN.get(part, part) for part in name.split("/"))

    return _unstacked(_squeezed(tensors.renamed(rename)))


def is_tower(tensors: Tensors) -> bool:
    """Whether a file has the towers of a SigLIP."""
    return any(name.startswith(_TOWERS) for name in tensors.shapes)


def pre_linen_name(name: str) -> str:
    """The name of an array before linen."""
    old = {new: old for old, new in PRE_LINEN.items()}
    return "/".join(old.get(part, part) for part in name.split("/"))


def without_counter(name: str) -> str:
    """A name without the counter that some files of gs://bit_models have in it: standardized_conv2d_17."""
    return re.sub(r"/standardized_conv2d_\d+/", "/standardized_conv2d/", name)


def _squeezed(tensors):
    """Normalizations stored as (1, 1, 1, C) as (C,), and a head that is a convolution, (1, 1, C, classes), as dense."""

    def squeezed(name, shape):
        rank = 2 if name == "resnet/head/conv2d/kernel" else 1
        is_one = len(shape) == 4 and (rank == 2 or not name.endswith("kernel")) and set(shape[:-rank]) == {1}
        return shape[-rank:] if is_one else shape

    shapes = {name: squeezed(name, shape) for name, shape in tensors.shapes.items()}
    return Tensors(tensors.path, shapes, lambda name: tensors.read(name).reshape(shapes[name]))


def _unstacked(tensors):
    """Arrays of all blocks in one, (depth, ...), as one array for each block."""
    stacked = {name: shape for name, shape in tensors.shapes.items() if name.startswith(_STACKED)}
    if not stacked:
        return tensors
    slices = {
        name.replace(_STACKED, f"Transformer/encoderblock_{i}/"): (name, i)
        for name, shape in stacked.items()
        for i in range(shape[0])
    }
    shapes = {name: shape for name, shape in tensors.shapes.items() if name not in stacked}
    shapes |= {name: stacked[stack][1:] for name, (stack, _) in slices.items()}
    cache = {}  # each stack is read once, and held with its remaining blocks until the last of them is read

    def read(name):
        if name not in slices:
            return tensors.read(name)
        stack, i = slices[name]
        if stack not in cache:
            cache[stack] = (tensors.read(stack), set(range(stacked[stack][0])))
        array, remaining = cache[stack]
        remaining.discard(i)
        if not remaining:
            del cache[stack]
        return array[i]

    return Tensors(tensors.path, shapes, read)
