"""Loads the .npz files of google-research/vision_transformer: linen and pre-linen names, plain models.

The names are those of its models_vit.py; files from before Flax's linen API number all submodules of a block in one
sequence (LayerNorm_0, MultiHeadDotProductAttention_1, LayerNorm_2, MlpBlock_3), linen numbers each kind from 0.
"""

import math
import re
import zipfile
from pathlib import Path

import numpy as np

from keras_vit.images import patch_grid
from keras_vit.layers.positions import resample_grid
from keras_vit.weights.match import LoadReport, check_match, check_values
from keras_vit.weights.transfer import POSITIONS, in_part, named_weights

PRE_LINEN = {
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "LayerNorm_2": "LayerNorm_1",
    "MlpBlock_3": "MlpBlock_0",
}
PARTS = {
    "patch_embedding/projection": "embedding",
    "encoder/norm": "Transformer/encoder_norm",
    "pre_logits": "pre_logits",
    "head": "head",
}
BLOCK_PARTS = {
    "norm_attention": "LayerNorm_0",
    "attention/out": "MultiHeadDotProductAttention_0/out",
    "norm_mlp": "LayerNorm_1",
    "mlp/hidden": "MlpBlock_0/Dense_0",
    "mlp/out": "MlpBlock_0/Dense_1",
}
LEAVES = {"gamma": "scale", "beta": "bias", "kernel": "kernel", "bias": "bias"}
FIXED = {POSITIONS: "Transformer/posembed_input/pos_embedding", "class_token/token": "cls"}


def read_npz(path) -> dict[str, np.ndarray]:
    """Reads all arrays of an .npz file under linen names; nothing is ever unpickled.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not an .npz file, is truncated, or holds pickled objects.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no weights file {path.absolute()}.")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {_linen_name(name): file[name] for name in file.files}
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise ValueError(
            f"{path} cannot be read as an .npz file of plain arrays: {error}. A download that broke off looks like "
            "this; fetch the file again."
        ) from error


def head_of(arrays) -> tuple[int | None, int | None]:
    """The file's number of classes and width of its hidden tanh layer; None where it has none."""
    classes, hidden = arrays.get("head/bias"), arrays.get("pre_logits/bias")
    return (None if classes is None else classes.shape[0]), (None if hidden is None else hidden.shape[0])


def load_npz(model, path, skip=(), weights_image_size=None, method="corners", arrays=None) -> LoadReport:
    """Sets all weights of a VisionTransformer from a file of google-research/vision_transformer.

    Args:
        model: The model; unchanged if anything does not fit.
        path: The .npz file.
        skip: Parts left out on both sides, such as ("head",); the model keeps its values there.
        weights_image_size: Picture size that the file was trained at, needed only if its grid of positions is not
            square.
        method: How positions are resampled if the grids differ, see `resample_grid`.
        arrays: What `read_npz(path)` returned, if it has been called already.

    Returns:
        What was loaded, skipped and resized.

    Raises:
        FileNotFoundError, ValueError: The file cannot be read, or names or shapes do not fit; the message lists them
            all.
    """
    arrays = read_npz(path) if arrays is None else arrays
    skipped = tuple(name for name in sorted(arrays) if in_part(name, skip))
    arrays = {name: array for name, array in arrays.items() if name not in skipped}
    variables = {name: variable for name, variable in named_weights(model).items() if not in_part(name, skip)}
    kept = tuple(sorted(set(named_weights(model)) - set(variables)))

    sources = {name: source_names(name) for name in variables}
    needed = {source for names in sources.values() for source in names}
    missing, unused = needed - set(arrays), set(arrays) - needed
    values, misshapen, resized = {}, [], None
    for name, names in sources.items():
        if missing.intersection(names):
            continue
        value = _assembled(name, [arrays[source] for source in names])
        comparable = value.shape[-1] == variables[name].shape[-1] and "cls" not in missing | unused
        if name == POSITIONS and comparable:
            value, resized = _fitted_positions(model, path, value, weights_image_size, method)
        if value.shape != tuple(variables[name].shape):
            misshapen.append((_together(names), value.shape, variables[name].shape))
        values[name] = value
    shape = {name: model.arguments[name] for name in ("depth", "width", "mlp_dim", "num_heads", "patch_size")}
    head = {name: model.arguments[name] for name in ("pooling", "class_token", "representation_size", "num_classes")}
    hint = (
        f"The model is {model.name} with {shape | head}. Build what the file was made for, or leave parts out with "
        "skip=(...)."
    )
    check_match(path, missing, unused, misshapen, hint)
    for name, value in values.items():
        check_values(path, _together(sources[name]), value)
    for name, value in values.items():
        variables[name].assign(value)
    return LoadReport(len(values), skipped, kept, resized)


def source_names(name: str) -> tuple[str, ...]:
    """The file's names of the arrays that make one of our weights: three for the fused QKV, else one."""
    if name in FIXED:
        return (FIXED[name],)
    part, _, leaf = name.rpartition("/")
    block = re.fullmatch(r"encoder/block_(\d+)/(.+)", part)
    if not block:
        return (f"{PARTS.get(part, part)}/{LEAVES.get(leaf, leaf)}",)
    prefix = f"Transformer/encoderblock_{block[1]}"
    if block[2] == "attention/qkv":
        return tuple(f"{prefix}/MultiHeadDotProductAttention_0/{kind}/{leaf}" for kind in ("query", "key", "value"))
    return (f"{prefix}/{BLOCK_PARTS[block[2]]}/{LEAVES[leaf]}",)


def _together(names) -> str:
    """One name for messages: ".../{query,key,value}/kernel" for the three that are fused."""
    if len(names) == 1:
        return names[0]
    return names[0].replace("/query/", "/{query,key,value}/")


def _linen_name(name: str) -> str:
    return "/".join(PRE_LINEN.get(part, part) for part in name.split("/"))


def _assembled(name, arrays):
    """The file's arrays in our layout: heads folded into the width, queries, keys and values side by side."""
    if name.endswith("attention/qkv/kernel"):
        arrays = [array.reshape(array.shape[0], -1) for array in arrays]  # (D, K, d) -> (D, D)
    elif name.endswith("attention/qkv/bias"):
        arrays = [array.reshape(-1) for array in arrays]  # (K, d) -> (D,)
    elif name.endswith("attention/out/kernel"):
        arrays = [array.reshape(-1, array.shape[-1]) for array in arrays]  # (K, d, D) -> (D, D)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)


def _fitted_positions(model, path, table, weights_image_size, method):
    """The table for the model's grid, and the two grids if they differ."""
    source = _file_grid(model, path, table.shape[1] - model.prefix_tokens, weights_image_size)
    if source == model.grid:
        return table, None
    return resample_grid(table, source, model.grid, method, model.prefix_tokens), (source, model.grid)


def _file_grid(model, path, patches, weights_image_size):
    """The (h, w) of the file's positions. The file holds their number only; published ones are square."""
    if weights_image_size is not None:
        grid = patch_grid(weights_image_size, model.patch_size)
        if grid[0] * grid[1] != patches:
            raise ValueError(
                f"weights_image_size={weights_image_size} means a grid of {grid} patches, but {path} has {patches} "
                "positions."
            )
        return grid
    side = math.isqrt(patches)
    square = (side, side) if side * side == patches else None
    own = model.grid if model.grid[0] * model.grid[1] == patches else None
    if (square or own) is None or (square and own and square != own):
        raise ValueError(
            f"{path} has {patches} positions, which may be more than one grid or none that is square. "
            "Say at which picture size it was trained: weights_image_size=(height, width)."
        )
    return square or own
