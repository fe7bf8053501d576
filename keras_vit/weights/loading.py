"""Sets a model's weights from a checkpoint of any source: all of them, or none and an error."""

import math
import warnings
from dataclasses import asdict, dataclass

from keras_vit.images import patch_grid
from keras_vit.named_weights import PARTS, POSITIONS, as_parts, first_kernel, in_part, named_weights, with_channels
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.opening import open_checkpoint


@dataclass(frozen=True)
class LoadReport:
    """What `load_weights` did.

    Args:
        loaded: Number of the model's weights that were set.
        skipped: The file's arrays that were skipped on request.
        kept: The model's weights that kept their values because their part was skipped.
        resized: The (h, w) grids of the positions in the file and in the model if they differ, else None.
    """

    loaded: int
    skipped: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    resized: tuple[tuple[int, int], tuple[int, int]] | None = None


def load_weights(model, weights, skip=(), weights_image_size=None, resample: str | None = None) -> LoadReport:
    """Sets all weights of a VisionTransformer or BiT from a checkpoint; resamples positions if the grids differ.

    For images of other channels than the checkpoint's, the first kernel is summed or repeated, see `with_channels`.

    Arrays are read one at a time: memory holds the model and at most one copy of its weights.

    Args:
        model: The model; unchanged if anything does not match.
        weights: File, folder or name, see `open_checkpoint`; or the `Checkpoint` that it returned.
        skip: Parts to skip in the model and in the file, by the model's names, such as "head" or
            ("head", "encoder/block_1"); the model keeps its values there. Also names of arrays in the file, or of what
            they are inside, such as "mask_token".
        weights_image_size: Image size that the file was trained at, needed only if its grid of positions is not
            square and no config.json specifies it.
        resample: How positions are resampled, see `resample_grid`; by default as the file's source does.

    Returns:
        What was loaded, skipped and resized.

    Raises:
        FileNotFoundError, ValueError: The file cannot be read, a part is unknown, the model has a different
            number of attention heads, or names or shapes do not match; the message lists them all.
    """
    checkpoint = weights if isinstance(weights, Checkpoint) else open_checkpoint(weights, weights_image_size)
    tensors, naming, variables = checkpoint.tensors, checkpoint.source.naming, named_weights(model)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    if kernel := first_kernel(shapes):
        height, width, _, outputs = shapes[kernel]
        shapes[kernel] = height, width, checkpoint.channels, outputs
    arrays = {
        name: naming.source_arrays(name, shape, getattr(model.config, "num_heads", None))
        for name, shape in shapes.items()
    }
    our_names = {name: naming.our_names(name) for name in tensors.shapes}  # none for a ResNet's
    paths = {name: name.replace(".", "/") for name in tensors.shapes}
    ours = [*arrays, *(name for names in our_names.values() for name in names)]
    skip = [part.replace(".", "/") for part in ([skip] if isinstance(skip, str) else skip)]
    skip = as_parts(skip, [*ours, *paths.values()])
    of_file = [part for part in skip if part not in PARTS and not any(in_part(name, (part,)) for name in ours)]
    kept = tuple(sorted(name for name in arrays if in_part(name, skip)))
    skipped = {array.name for name in kept for array in arrays[name]} & set(tensors.shapes)
    skipped |= {name for name, names in our_names.items() if any(in_part(part, skip) for part in names)}
    skipped |= {name for name, path in paths.items() if in_part(path, of_file)}
    arrays = {name: found for name, found in arrays.items() if name not in kept}
    _check_match(model, checkpoint, arrays, skipped)
    _check_num_heads(model, checkpoint, arrays)

    values, resized = {}, None
    for name, found in arrays.items():
        parts = [tensors.read(array.name) for array in found]
        if name == POSITIONS:
            parts[0], resized = _positions(model, checkpoint, parts[0], weights_image_size, resample)
        values[name] = naming.from_source(parts, shapes[name])
        if name == kernel:
            values[name] = with_channels(values[name], variables[name].shape[2])
    _warn_of_other_functions(model, checkpoint)
    loaded = len(values)
    for name in list(values):
        variables[name].assign(values.pop(name))
    return LoadReport(loaded, tuple(sorted(skipped)), kept, resized)


def _check_match(model, checkpoint, arrays, skipped):
    """Raises a ValueError with all missing and unused names and all shapes that differ, if there are any."""
    shapes = checkpoint.tensors.shapes
    needed = {array.name for sources in arrays.values() for array in sources}
    present = set(shapes) - skipped
    missing, unused = needed - present, present - needed
    mismatches = [
        (array.name, shapes[array.name], array.shape)
        for name, sources in arrays.items()
        for array in sources
        if array.name in present and not _shapes_match(name, shapes[array.name], array.shape, missing | unused)
    ]
    if not (missing or unused or mismatches):
        return
    rows = [("missing from the file", "unused in the file")]
    for i in range(max(len(missing), len(unused))):
        rows.append(tuple(names[i] if i < len(names) else "" for names in (sorted(missing), sorted(unused))))
    lines = _columns(rows) if len(rows) > 1 else []
    if mismatches:
        cells = [(name, str(tuple(shape)), str(tuple(expected))) for name, shape, expected in mismatches]
        lines += _columns([("shape mismatch", "shape in the file", "shape in the model"), *cells])
    table = "\n".join(lines)
    raise ValueError(
        f"The weights in {checkpoint.tensors.path} do not match the model; nothing was loaded. {len(missing)} missing, "
        f"{len(unused)} unused, {len(mismatches)} of a different shape:\n{table}\n{_remedy(model, checkpoint)}"
    )


def _shapes_match(name, found, expected, unmatched):
    """A position table may have a different number of rows if both sides have the same prefix tokens."""
    if name == POSITIONS and not any("cls" in other or "token" in other for other in unmatched):
        found, expected = ((*shape[:1], *shape[2:]) for shape in (found, expected))
    return tuple(found) == tuple(expected)


def _columns(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _remedy(model, checkpoint):
    ours, harmless = asdict(model.config), ("image_size", "gelu", "epsilon", "class_names", "projection")
    differing = [
        f"{name}={ours[name]!r} (file: {value!r})"
        for name, value in checkpoint.arguments.items()
        if name in ours and ours[name] != value and name not in harmless
        if not (name == "num_heads" and value is None)  # not in the file
    ]
    start = f"The model {model.name} differs in {', '.join(differing)}." if differing else f"The model is {model.name}."
    return (
        f"{start} Build the model of the file, or skip parts: keras_vit.weights.load_weights(model, file, skip=(...))."
    )


def _check_num_heads(model, checkpoint, names):
    """Where the shapes do not depend on the number of heads, another number would load, but change the outputs."""
    ours, theirs = getattr(model.config, "num_heads", None), checkpoint.arguments.get("num_heads")
    if theirs is not None and ours != theirs and any(name.endswith("attention/qkv/kernel") for name in names):
        raise ValueError(
            f"{checkpoint.tensors.path} was trained with num_heads={theirs}, but {model.name} has num_heads={ours}; "
            f"nothing was loaded. Build the model with num_heads={theirs}."
        )


def _warn_of_other_functions(model, checkpoint):
    """Another GELU or epsilon leaves no trace in the weights, but changes the outputs."""
    for name in ("gelu", "epsilon"):
        ours, theirs = getattr(model.config, name, None), checkpoint.arguments.get(name)
        if theirs is not None and ours != theirs:
            warnings.warn(
                f"{checkpoint.tensors.path} was trained with {name}={theirs!r}, but {model.name} has {name}={ours!r}: "
                "outputs will differ slightly.",
                stacklevel=3,
            )


def _positions(model, checkpoint, table, weights_image_size, resample):
    """The table for the model's grid, and both grids if they differ."""
    prefix_tokens = model.prefix_tokens if model.config.prefix_positions else 0
    size = weights_image_size or checkpoint.arguments["image_size"]
    num_patches = table.shape[1] - prefix_tokens
    is_stated = checkpoint.states_size or bool(weights_image_size)
    grid = _file_grid(model, checkpoint.tensors.path, num_patches, size, bool(weights_image_size), is_stated)
    if grid == model.grid:
        return table, None
    from keras_vit.layers.positions import resample_grid

    resample = resample or checkpoint.source.resample
    return resample_grid(table, grid, model.grid, resample, prefix_tokens), (grid, model.grid)


def _file_grid(model, path, num_patches, size, is_given, is_stated):
    """The (h, w) of the file's positions. Many files only have their number; the grid is then assumed square."""
    if size is not None:
        grid = patch_grid(size, model.patch_size)
        if grid[0] * grid[1] == num_patches and (is_stated or grid[0] != grid[1] or not _ambiguous(model, num_patches)):
            return grid
        if is_given:
            raise ValueError(
                f"weights_image_size={size} means a grid of {grid} patches, but {path} has {num_patches} positions."
            )
    side = math.isqrt(num_patches)
    if side * side != num_patches or model.grid != (side, side):
        raise ValueError(
            f"{path} has {num_patches} positions, whose grid is ambiguous or not square. "
            "Pass the image size that it was trained at: weights_image_size=(height, width)."
        )
    return model.grid


def _ambiguous(model, num_patches):
    """Whether the positions may be a square or the model's own grid, which is not square."""
    side = math.isqrt(num_patches)
    is_own = model.grid[0] * model.grid[1] == num_patches
    return is_own and side * side == num_patches and model.grid != (side, side)
