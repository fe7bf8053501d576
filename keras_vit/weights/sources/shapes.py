"""Model arguments that follow from the names and shapes of a file's arrays."""

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from keras_vit.variants import ROOT_STRIDE
from keras_vit.weights.files import Tensors

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
