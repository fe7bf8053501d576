"""What the modules of sources share.

Model arguments that follow from the names and shapes of a file's arrays; arrays that follow from others, where a source
stores other ones than our layers have; our weights under the names of a source.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from keras_vit.messages import first_names
from keras_vit.named_weights import merged_weights
from keras_vit.variants import ROOT_STRIDE
from keras_vit.weights.files import Tensors
from keras_vit.weights.naming import Naming

Shapes = Mapping[str, tuple[int, ...]]
Result = TypeVar("Result")


def read_arguments(read: Callable[..., Result], tensors: Tensors, *others: object) -> Result:
    """`read(tensors, *others)`; raises ValueError if the file lacks an array or one has another rank."""
    try:
        return read(tensors, *others)
    except KeyError as error:
        raise ValueError(f"{tensors.path} lacks {error}: the file is incomplete or of another architecture.") from error
    except IndexError as error:
        raise ValueError(f"{tensors.path} has arrays whose ranks are not those of a Vision Transformer.") from error


def kernel_shape(tensors: Tensors, name: str) -> tuple[int, ...]:
    """Shape of the kernel of a convolution; raises ValueError unless it has four axes."""
    shape = tensors.shapes[name]
    if len(shape) != 4:
        raise ValueError(f"{tensors.path}: {name} has shape {shape}; the kernel of a convolution has four axes.")
    return shape


# Pairs of a pattern and its replacement, applied in this order.
Spelling = tuple[tuple[str, str | Callable[[re.Match], str]], ...]


def respell(name: str, spelling: Spelling) -> str:
    """A name of an array that a project has in several versions, as the table of names has it."""
    for pattern, replacement in spelling:
        name = re.sub(pattern, replacement, name)
    return name


def num_blocks(shapes: Shapes, pattern: str) -> int:
    """Number of blocks; the first group of `pattern` is the index of a block."""
    indices = [int(match[1]) for match in map(re.compile(pattern).match, shapes) if match]
    return max(indices, default=-1) + 1


def resnet_stages(
    shapes: Shapes, root: str = "conv_root/kernel", unit: str = r"(?:resnet/)?block(\d+)/unit(\d+)/"
) -> tuple[int, ...] | None:
    """Number of units in each stage of a ResNet; () if it is only a root, None if there is no ResNet."""
    if root not in shapes:
        return None
    units: dict[int, set[str]] = {}
    for match in filter(None, map(re.compile(unit).match, shapes)):
        units.setdefault(int(match[1]), set()).add(match[2])
    return tuple(len(units[stage]) for stage in sorted(units))


def resnet_stride(stages: tuple[int, ...] | None) -> int:
    """Output stride of a ResNet in pixels; 1 without one."""
    return 1 if stages is None else ROOT_STRIDE * 2 ** max(len(stages) - 1, 0)


def covered_size(size, patch_size) -> tuple[int, int] | None:
    """(height, width) of an image, one number or two, without the pixels at its border that no patch covers.

    SigLIP's SO400M has patches of 14 x 14 in images of 384 x 384: its convolution ignores the last 6 rows and columns.

    Args:
        size: Pixels, one number or (height, width), or nothing for None.
        patch_size: Pixels, (height, width).
    """
    if not size:
        return None
    sides = size if isinstance(size, list | tuple) else (size, size)
    height, width = (max(side // patch, 1) * patch for side, patch in zip(sides, patch_size, strict=True))
    return height, width


def square_image_size(patches: int, patch_size: tuple[int, int]) -> tuple[int, int] | None:
    """(height, width) in pixels of a square grid of patches; None if their number is not a square."""
    side = math.isqrt(patches)
    return (side * patch_size[0], side * patch_size[1]) if side * side == patches else None


@dataclass(frozen=True)
class Derived:
    """An array that follows from others."""

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


def zero_biases(tensors: Tensors, kernels: str) -> dict[str, Derived]:
    """Biases of zeros for the kernels of this pattern, "....weight" of PyTorch, if none of them has a bias."""
    found = {name: name.removesuffix("weight") + "bias" for name in tensors.shapes if re.fullmatch(kernels, name)}
    if any(bias in tensors for bias in found.values()):
        return {}
    return {bias: zeros(tensors.shapes[name][0]) for name, bias in found.items()}


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


def named_arrays(model, naming: Naming, rename: Callable[[str], str] = lambda name: name) -> dict[str, np.ndarray]:
    """All weights of a model as arrays of `array_dtype` under `rename` of the source's names."""
    from keras import ops

    arrays: dict[str, np.ndarray] = {}
    unnamed = []
    for name, variable in merged_weights(model).items():
        targets = naming.source_arrays(name, variable.shape, getattr(model.config, "num_heads", None))
        if not targets[0].is_known:
            unnamed.append(name)
            continue
        values = naming.to_source(ops.convert_to_numpy(variable).astype(array_dtype(model)), targets)
        arrays |= {rename(target.name): value for target, value in zip(targets, values)}
    if unnamed:
        raise ValueError(f"The format cannot store {first_names(unnamed)}.")
    return arrays


def array_dtype(model) -> str:
    """ "float16" for a model in float16, else "float32": NumPy has no bfloat16."""
    return "float16" if model.variable_dtype == "float16" else "float32"


# Arguments that do not change the shapes of weights: these fit a model with another value, too.
WITHOUT_TRACE = ("gelu", "epsilon", "pooling")


def check_values(model, format_name: str, **allowed: tuple):
    """Raises a ValueError if an argument has a value that the format cannot store.

    Args:
        model: A VisionTransformer.
        format_name: Start of the message.
        **allowed: The values that the format implies, by the argument's name.
    """
    for name, values in allowed.items():
        if getattr(model.config, name) not in values:
            other = f", or load it with {name}={values[0]!r} if the weights were trained that way"
            raise ValueError(
                f"{format_name} cannot store {name}={getattr(model.config, name)!r}, only "
                f"{' or '.join(map(repr, values))}. Save the model as .keras{other if name in WITHOUT_TRACE else ''}."
            )
