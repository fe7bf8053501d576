"""Weights from one of our models to another that differs in its head or its image size."""

from keras import ops

from keras_vit.layers.positions import resample_grid

POSITIONS = "positions/table"
# What our models are made of; any of them may lack some. BiT's "norm" is none: a ViT's users would mean "encoder/norm".
PARTS = (
    *("backbone", "patch_embedding", "class_token", "distillation_token", "register_tokens", "positions", "encoder"),
    *("pooling", "pooled_norm", "pre_logits", "head", "head_distillation"),
)


def named_weights(model) -> dict:
    """The model's variables by their path inside it, such as "encoder/block_0/mlp/hidden/kernel"."""
    return {variable.path.removeprefix(f"{model.path}/"): variable for variable in model.weights}


def in_part(name: str, parts) -> bool:
    """Whether a slash-separated name is one of the parts or lies in one: "head/bias" lies in "head"."""
    return any(name == part or name.startswith(f"{part}/") for part in parts)


def as_parts(skip, names) -> tuple[str, ...]:
    """`skip` as a tuple, one part or several.

    Raises:
        ValueError: A part is neither one of `PARTS` nor holds any of the names.
    """
    parts = (skip,) if isinstance(skip, str) else tuple(skip)
    for part in parts:
        if part not in PARTS and not any(in_part(name, (part,)) for name in names):
            raise ValueError(
                f"There is no part {part!r} to skip. Parts are {', '.join(PARTS)}, and what is in them, such as "
                "encoder/block_0."
            )
    return parts


def copy_weights(source, target, skip=(), method="corners"):
    """Copies every weight of one VisionTransformer to another, positions resampled if the grids differ.

    Args:
        source, target: Models that differ only in image size and in the skipped parts.
        skip: Parts that are not copied, such as "head" or ("head", "encoder/block_0").
        method: See `resample_grid`.

    Raises:
        ValueError: The source has weights that the target has no place for, such as those of LoRA; or an unknown part.
    """
    values, variables = named_weights(source), named_weights(target)
    skip = as_parts(skip, [*values, *variables])
    homeless = [name for name in values if name not in variables and not in_part(name, skip)]
    if homeless:
        raise ValueError(
            f"{source.name} has weights that a new model lacks: {', '.join(homeless[:3])}. Those of LoRA are merged by "
            "saving the model as .keras and loading it again."
        )
    for name, variable in variables.items():
        if in_part(name, skip):
            continue
        value = ops.convert_to_numpy(values[name])
        if name.startswith("positions") and source.grid != target.grid:
            value = _resampled(name.rpartition("/")[2], value, source, target, method)
        variable.assign(value)


def _resampled(leaf, value, source, target, method):
    """A table of all patches, or of rows or columns only, on the target's grid."""
    if leaf == "table":
        prefix = source.prefix_tokens if source.arguments["prefix_positions"] else 0
        return resample_grid(value, source.grid, target.grid, method, prefix)
    if leaf == "prefix":
        return value
    axis = 0 if leaf == "rows" else 1
    return resample_grid(value, (source.grid[axis], 1), (target.grid[axis], 1), method)
