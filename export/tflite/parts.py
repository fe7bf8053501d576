"""Names of a model's parts, and the operations that belong to them, for files that leave some parts in float."""

import re
from collections.abc import Sequence

from keras_vit.export.tflite.graph_rewrite import encoder_blocks

ALL_ELSE = "all else"  # pixels, patches, the last normalization


def part_names(model) -> list[str]:
    """Attention and MLP of each block, such as "block_3/mlp", "head" and "all else"."""
    branches = ("attention", "mlp")
    blocks = [f"{block.name}/{branch}" for block in encoder_blocks(model) for branch in branches]
    return [*blocks, *["head"] * bool(model.num_classes), ALL_ELSE]


def operations_of(model, parts: Sequence[str]) -> tuple[str, ...]:
    """Regular expressions, one of which matches the name of each operation of these parts, for `quantize`.

    Raises:
        ValueError: The model has no such part, or `parts` is a string.
    """
    if isinstance(parts, str):
        raise ValueError(f"`keep_float` must be a list. Received: the string {parts!r}. Pass keep_float=[{parts!r}]")
    known = part_names(model)
    if unknown := [part for part in parts if part not in known]:
        raise ValueError(f"Parts of {model.name}: {', '.join(known)}. Received: {', '.join(unknown)}")
    return tuple(f".*{_any_of([part])}.*" if part != ALL_ELSE else f"^(?!.*{_any_of(known[:-1])}).*" for part in parts)


def all_but(model, part: str) -> tuple[str, ...]:
    """The same for the operations of all other parts."""
    return (f".*{_any_of(part_names(model)[:-1])}.*" if part == ALL_ELSE else f"^(?!.*{_any_of([part])}).*",)


def _any_of(names):
    return f"({'|'.join(map(re.escape, names))})"
