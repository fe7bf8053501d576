"""Copies weights between models of keras_vit that differ in their head, image size or patch size."""

from keras import ops

from keras_vit.keras_internals import all_layers, has_lora, is_quantized
from keras_vit.layers.patches import resample_patch_embedding
from keras_vit.layers.positions import resample_grid
from keras_vit.messages import first_names
from keras_vit.models.outer_model import OuterModel
from keras_vit.named_weights import (
    PATCH_KERNEL,
    as_parts,
    first_kernel,
    in_part,
    merged_weights,
    named_layers,
    named_weights,
    with_channels,
)


def float32_copy(model):
    """The same model with the same weights that computes in float32, whatever precision it was trained in.

    A model around ours is returned as it is; raises a ValueError if it computes in another precision.
    """
    if isinstance(model, OuterModel):
        other = {layer.compute_dtype for layer in all_layers(model.model)} - {"float32"}
        if other:
            raise ValueError(f"Expected a model around ours in float32. Received: {model.name} in {min(other)}.")
        return model
    copy = type(model).from_config({**model.get_config(), "dtype": "float32", "inner_layers": {}})
    copy_weights(model, copy)
    return copy


def copy_weights(source, target, skip=(), resample: str = "corners"):
    """Copies every weight of one model to another; resamples positions and patch embedding if their sizes differ.

    Args:
        source, target: Models that differ only in image size, patch size, channels and in the skipped parts.
        skip: Parts not to copy, such as "head" or ("head", "encoder/block_0").
        resample: How positions are resampled, see `resample_grid`.

    Raises:
        ValueError: Keras quantized the source but not the target, or the source has weights that the target lacks.
    """
    variables = named_weights(target)
    values = named_weights(source) if any(map(has_lora, all_layers(target))) else merged_weights(source)
    skip = as_parts(skip, [*values, *variables])
    ours, theirs = ({path for path, x in named_layers(m).items() if is_quantized(x)} for m in (source, target))
    if any(not in_part(path, skip) for path in ours - theirs):
        raise ValueError(
            f"Expected a model before quantize(). Received: {source.name}, which Keras quantized. Change or export the "
            "model first; write_saved_model and model.export take it as it is."
        )
    extra = [name for name in values if name not in variables and not in_part(name, skip)]
    if extra:
        raise ValueError(f"{source.name} has weights that a new model lacks: {first_names(extra)}.")
    kernel = first_kernel(variables)
    for name, variable in variables.items():
        if in_part(name, skip):
            continue
        value = ops.convert_to_numpy(values[name])
        if name.startswith("positions") and source.grid != target.grid:
            value = _resampled(name.rpartition("/")[2], value, source, target, resample)
        if name == PATCH_KERNEL:
            value = resample_patch_embedding(value, tuple(variable.shape[:2]))
        variable.assign(with_channels(value, variable.shape[2]) if name == kernel else value)


def _resampled(leaf, value, source, target, resample):
    """A table of all patches, or of rows or columns, on the target's grid."""
    if leaf == "table":
        prefix = source.prefix_tokens if source.config.prefix_positions else 0
        return resample_grid(value, source.grid, target.grid, resample, prefix)
    if leaf == "prefix":
        return value
    axis = 0 if leaf == "rows" else 1
    return resample_grid(value, (source.grid[axis], 1), (target.grid[axis], 1), resample)
