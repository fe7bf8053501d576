"""Arrays that follow from those of a file, where a source stores other ones than our layers have.

Shapes are known without reading; an array is read and computed when it is asked for.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from keras_vit.weights.files import Tensors


@dataclass(frozen=True)
class Derived:
    """An array that follows from others.

    Args:
        shape: Its shape.
        compute: Returns it, as float32.
    """

    shape: tuple[int, ...]
    compute: Callable[[], np.ndarray]


def with_derived(tensors: Tensors, arrays: dict[str, Derived], without: Iterable[str] = ()) -> Tensors:
    """The arrays of a file with others added or replaced, and without those named."""
    kept = {name: shape for name, shape in tensors.shapes.items() if name not in set(without)}
    shapes = kept | {name: array.shape for name, array in arrays.items()}
    return Tensors(tensors.path, shapes, lambda name: arrays[name].compute() if name in arrays else tensors.read(name))


def zeros(*shape: int) -> Derived:
    """A bias that a source does not have."""
    return Derived(shape, lambda: np.zeros(shape, "float32"))


def reshaped(tensors: Tensors, name: str, *shape: int) -> Derived:
    """An array of a file with other axes; `load_weights` compares the shape, so the sizes must be equal."""
    return Derived(shape, lambda: tensors.read(name).reshape(shape))


def transposed(tensors: Tensors, name: str) -> Derived:
    """A matrix of a file with its axes exchanged."""
    return Derived(tuple(tensors.shapes[name][::-1]), lambda: tensors.read(name).T)


def split(tensors: Tensors, name: str, parts: Iterable[str]) -> dict[str, Derived]:
    """Equal parts of an array along its first axis, under these names."""
    names, shape = tuple(parts), tensors.shapes[name]
    if not shape or shape[0] % len(names):
        raise ValueError(f"{tensors.path}: {name} has shape {shape}, which is not {len(names)} arrays in one.")
    part_shape = (shape[0] // len(names), *shape[1:])
    return {
        part: Derived(part_shape, lambda i=i: np.split(tensors.read(name), len(names))[i])  # type: ignore[misc]
        for i, part in enumerate(names)
    }


def token_with_position(tensors: Tensors, token: str, positions: str) -> dict[str, Derived]:
    """A class token with its position added, and the positions of the patches alone.

    DINOv2 with registers has positions for the class token and the patches, but not for the registers between them.

    Args:
        token: Name of the token, (1, 1, D).
        positions: Name of the table, (1, 1 + N, D).
    """
    shape = tensors.shapes[positions]
    if len(shape) != 3 or shape[0] != 1 or shape[1] < 2:
        raise ValueError(f"{tensors.path}: {positions} has shape {shape}; positions have (1, tokens, width).")
    batch, rows, width = shape
    return {
        token: Derived(tensors.shapes[token], lambda: tensors.read(token) + tensors.read(positions)[:, :1]),
        positions: Derived((batch, rows - 1, width), lambda: tensors.read(positions)[:, 1:]),
    }
