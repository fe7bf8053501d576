"""Sets a model's weights from a file of any known source: all of them, or none and an error."""

import math
import warnings

from keras_vit.images import patch_grid
from keras_vit.layers.positions import resample_grid
from keras_vit.weights.checkpoint import Checkpoint, open_checkpoint
from keras_vit.weights.match import LoadReport, check_match
from keras_vit.weights.transfer import POSITIONS, as_parts, in_part, named_weights


def load_weights(model, weights, skip=(), weights_image_size=None, method=None) -> LoadReport:
    """Sets all weights of a VisionTransformer or BiT from a published file, positions resampled if the grids differ.

    Arrays are read one at a time; beside the model no more than one copy of the weights is held.

    Args:
        model: The model; unchanged if anything does not fit.
        weights: File, folder or name, see `open_checkpoint`; or what that returned.
        skip: Parts left out on both sides under our names, such as "head" or ("head", "encoder/block_1"); the model
            keeps its values there.
        weights_image_size: Image size that the file was trained at, needed only if its grid of positions is not
            square and no config.json says it.
        method: How positions are resampled, see `resample_grid`; by default as the file's source does.

    Returns:
        What was loaded, skipped and resized.

    Raises:
        FileNotFoundError, ValueError: The file cannot be read, a part is unknown, the model has another number of
            attention heads, or names or shapes do not fit; the message lists them all.
    """
    checkpoint = weights if isinstance(weights, Checkpoint) else open_checkpoint(weights, weights_image_size)
    tensors, naming, variables = checkpoint.tensors, checkpoint.origin.naming, named_weights(model)
    pieces = {
        name: naming.pieces(name, variable.shape, model.arguments.get("num_heads"))
        for name, variable in variables.items()
    }
    ours = {name: naming.our_names(name) for name in tensors.shapes}  # none for a ResNet's
    skip = as_parts(skip, [*pieces, *(name for found in ours.values() for name in found)])
    kept = tuple(sorted(name for name in pieces if in_part(name, skip)))
    skipped = {piece.name for name in kept for piece in pieces[name]} & set(tensors.shapes)
    skipped |= {name for name, found in ours.items() if any(in_part(part, skip) for part in found)}
    pieces = {name: found for name, found in pieces.items() if name not in kept}
    needed = {piece.name for found in pieces.values() for piece in found}
    present = set(tensors.shapes) - skipped
    missing, unused = needed - present, present - needed
    misshapen = [
        (piece.name, tensors.shapes[piece.name], piece.shape)
        for name, found in pieces.items()
        for piece in found
        if piece.name in present and not _fits(name, tensors.shapes[piece.name], piece.shape, missing | unused)
    ]
    check_match(tensors.path, missing, unused, misshapen, _hint(model, checkpoint))
    _check_heads(model, checkpoint, pieces)

    values, resized = {}, None
    for name, found in pieces.items():
        arrays = [tensors.read(piece.name) for piece in found]
        if name == POSITIONS:
            arrays[0], resized = _fitted(model, checkpoint, arrays[0], weights_image_size, method)
        values[name] = naming.to_ours(arrays, tuple(variables[name].shape))
    _warn_of_forms(model, checkpoint)
    count = len(values)
    for name in list(values):
        variables[name].assign(values.pop(name))
    return LoadReport(count, tuple(sorted(skipped)), kept, resized)


def _warn_of_forms(model, checkpoint):
    """Another GELU or epsilon leaves no trace among the weights, but moves the outputs."""
    for name in ("gelu", "epsilon"):
        theirs = checkpoint.arguments.get(name)
        if theirs is not None and model.arguments.get(name) != theirs:
            warnings.warn(
                f"{checkpoint.tensors.path} was made with {name}={theirs!r}, but {model.name} has "
                f"{name}={model.arguments.get(name)!r}: outputs will differ a little.",
                stacklevel=3,
            )


def _check_heads(model, checkpoint, names):
    """Where shapes do not show the number of heads, another one would load, and give other outputs."""
    ours, theirs = (arguments.get("num_heads") for arguments in (model.arguments, checkpoint.arguments))
    if theirs is not None and ours != theirs and any(name.endswith("attention/qkv/kernel") for name in names):
        raise ValueError(
            f"{checkpoint.tensors.path} was made with num_heads={theirs}, but {model.name} has num_heads={ours}; "
            f"nothing was loaded. Build the model with num_heads={theirs}."
        )


def _fits(name, found, wanted, mismatched):
    """Whether shapes agree; a position table may have another number of rows if the prefix tokens are the same."""
    if name == POSITIONS and not any("cls" in other or "token" in other for other in mismatched):
        found, wanted = ((*shape[:1], *shape[2:]) for shape in (found, wanted))
    return tuple(found) == tuple(wanted)


def _hint(model, checkpoint):
    ours = model.arguments
    differing = [
        f"{name}={ours[name]!r} (the file: {value!r})"
        for name, value in checkpoint.arguments.items()
        if name in ours and ours[name] != value and name not in ("image_size", "gelu", "epsilon")
        if not (name == "num_heads" and value is None)  # the file does not say
    ]
    made = f"The model {model.name} differs in {', '.join(differing)}." if differing else f"The model is {model.name}."
    return f"{made} Build what the file was made for, or leave parts out with skip=(...)."


def _fitted(model, checkpoint, table, weights_image_size, method):
    """The table for the model's grid, and the two grids if they differ."""
    prefix = model.prefix_tokens if model.arguments["prefix_positions"] else 0
    size = weights_image_size or checkpoint.arguments["image_size"]
    source = _file_grid(model, checkpoint.tensors.path, table.shape[1] - prefix, size, bool(weights_image_size))
    if source == model.grid:
        return table, None
    method = method or checkpoint.origin.resample
    return resample_grid(table, source, model.grid, method, prefix), (source, model.grid)


def _file_grid(model, path, patches, size, size_is_given):
    """The (h, w) of the file's positions. Many files hold their number only: then they are taken for a square."""
    if size is not None:
        grid = patch_grid(size, model.patch_size)
        if grid[0] * grid[1] == patches and (size_is_given or grid[0] != grid[1] or not _ambiguous(model, patches)):
            return grid
        if size_is_given:
            raise ValueError(
                f"weights_image_size={size} means a grid of {grid} patches, but {path} has {patches} positions."
            )
    side = math.isqrt(patches)
    if side * side != patches or model.grid != (side, side):
        raise ValueError(
            f"{path} has {patches} positions, which may be more than one grid or none that is square. "
            "Say at which image size it was trained: weights_image_size=(height, width)."
        )
    return model.grid


def _ambiguous(model, patches):
    """Whether the positions may be a square or the model's own grid, which is not square."""
    side = math.isqrt(patches)
    own = model.grid[0] * model.grid[1] == patches
    return own and side * side == patches and model.grid != (side, side)
