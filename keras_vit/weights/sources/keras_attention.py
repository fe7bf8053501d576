"""What KerasHub and tf-models-official share: both build on `keras.layers.MultiHeadAttention`.

Each has several spellings of an array's path. Their modules rename them to those of the table here.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_vit.weights.files import MODEL, RECIPE, Tensors, checked, is_unfinished, unfinished_message
from keras_vit.weights.naming import Naming
from keras_vit.weights.sources.arrays import (
    Spelling,
    kernel_shape,
    num_blocks,
    read_arguments,
    respell,
    square_image_size,
)

OUR_BLOCK = "encoder/block_{i}"
NAMING = Naming(
    {
        "patch_embedding/projection": ("patch_embedding/",),
        f"{OUR_BLOCK}/norm_attention": ("block{i}/layer_norm_1/",),
        f"{OUR_BLOCK}/attention/qkv": tuple(f"block{{i}}/mha/{kind}/" for kind in ("query", "key", "value")),
        f"{OUR_BLOCK}/attention/out": ("block{i}/mha/output/",),
        f"{OUR_BLOCK}/scale_attention": ("block{i}/layer_scale_attn",),
        f"{OUR_BLOCK}/norm_mlp": ("block{i}/layer_norm_2/",),
        f"{OUR_BLOCK}/mlp/hidden": ("block{i}/mlp/dense_1/",),
        f"{OUR_BLOCK}/mlp/out": ("block{i}/mlp/dense_2/",),
        f"{OUR_BLOCK}/scale_mlp": ("block{i}/layer_scale_mlp",),
        "encoder/norm": ("norm/",),
        "pre_logits": ("pre_logits/",),
        "head": ("head/",),
    },
    {leaf: leaf for leaf in ("gamma", "beta", "kernel", "bias")},
    {
        "positions/table": "positions",
        "class_token/token": "class_token",
        "register_tokens/tokens": "distillation_token",
    },
    "heads",
)


def by_table_name(path, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Pairs of the table's name and the project's as a dictionary; raises ValueError for a name that occurs twice."""
    found: dict[str, str] = {}
    for name, theirs in names:
        if found.setdefault(name, theirs) != theirs:
            raise ValueError(f"{path} contains both {found[name]} and {theirs}, which are the same weight ({name}).")
    return found


def table_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Positions of an embedding layer, (N, D), as (1, N, D); LayerScale's gamma, (1, 1, D), as (D,)."""
    if "position_embedding" in name or name == "positions":
        return (1, *shape) if len(shape) == 2 else shape
    return shape[-1:] if "layer_scale" in name else shape


def variable_path(variable) -> str:
    """The path of a variable of Keras 3, or the name of one of tf_keras."""
    return getattr(variable, "path", variable.name)


def model_tensors(model, spelling: Spelling) -> Tensors:
    """The weights of a model in memory under the names of the table."""
    weights = {variable_path(weight): weight for weight in model.weights}
    names = by_table_name(model.name, ((respell(name, spelling), name) for name in weights))
    shapes = {name: table_shape(name, tuple(weights[theirs].shape)) for name, theirs in names.items()}

    def read(name):
        return checked(model.name, name, np.asarray(weights[names[name]])).reshape(shapes[name])

    return Tensors(Path(model.name), shapes, read)


def model_arguments(tensors: Tensors, config: dict) -> dict:
    """Arguments of a VisionTransformer."""
    if "patch_embedding/kernel" not in tensors:
        run = Path(tensors.path).parent
        if is_unfinished(run):
            raise ValueError(f"{tensors.path} is a checkpoint of a training. {unfinished_message(run)}")
        if (run / RECIPE).is_file():
            raise ValueError(f"{tensors.path} is a checkpoint of a training. Pass its model: {run / MODEL}")
        raise ValueError(
            f"{tensors.path} is not a Vision Transformer of KerasHub or tf-models-official. If it was "
            "written by save_weights of a keras_vit model, it does not describe the model: build the model, then use "
            "model.load_weights(file)."
        )
    return read_arguments(_arguments, tensors, config)


def _arguments(tensors, config):
    shapes, backbone = tensors.shapes, config.get("config", {})
    patch_height, patch_width, _, width = kernel_shape(tensors, "patch_embedding/kernel")
    has_token, has_second_token = "class_token" in shapes, "distillation_token" in shapes
    pooling = config.get("task", {}).get("pooling", "token" if has_token else "gap")
    if pooling == "gap" and has_token:
        raise ValueError(
            f"{tensors.path}: KerasHub's pooling='gap' also averages the class token, which is not supported. Use a "
            "model without a class token, or with pooling='token'."
        )
    patch_size, size = (patch_height, patch_width), backbone.get("image_shape", (None,))[:2]
    num_patches = shapes["positions"][1] - has_token - has_second_token
    return {
        "image_size": tuple(size) if None not in size else square_image_size(num_patches, patch_size),
        "patch_size": patch_size,
        "depth": num_blocks(shapes, r"block(\d+)/"),
        "width": width,
        "mlp_dim": shapes["block0/mlp/dense_1/bias"][0],
        "num_heads": shapes["block0/mha/query/bias"][0],
        "num_classes": shapes.get("head/bias", (0,))[0],
        "pooling": pooling,
        "class_token": has_token,
        "register_tokens": int(has_second_token),
        "representation_size": shapes.get("pre_logits/bias", (None,))[0],
        "epsilon": backbone.get("layer_norm_epsilon", 1e-6),
        "layer_scale": 1e-5 if "block0/layer_scale_attn" in shapes else None,
    }
