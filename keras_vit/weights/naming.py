"""How a source names and shapes the arrays that hold our weights. D width, K heads, d head width (D / K)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class ResNetNaming:
    """The names of a source."""

    layers: dict[str, str]  # path of our root layer, final normalization or head to the name of the source's
    unit_layers: dict[str, str]  # name of a layer in our units to the source's
    unit: str  # format of the name of a unit's layer, of {block}, {unit} and {layer}
    first: int = 1  # index of the first block and unit
    leaves: dict[str, str] = field(default_factory=dict)  # last part of our weight's path, where they differ
    separator: str = "/"

    def name(self, path: str) -> str | None:
        """The source's name of a weight; None if it has no such weight.

        Args:
            path: Inside a hybrid or a BiT, such as "backbone/block1/unit2/gn3/gamma"; see
                `keras_vit.named_weights.named_weights`.
        """
        part, _, leaf = path.removeprefix("backbone/").rpartition("/")
        unit = re.fullmatch(r"block(\d+)/unit(\d+)/(\w+)", part)
        layer = self.unit_layers.get(unit[3]) if unit else self.layers.get(part)
        if layer is None:
            return None
        if unit:
            block, number = (int(index) - 1 + self.first for index in unit.groups()[:2])
            layer = self.unit.format(block=block, unit=number, layer=layer)
        return f"{layer}{self.separator}{self.leaves.get(leaf, leaf)}"


@dataclass(frozen=True)
class SourceArray:
    """An array of a source's file: its name and the shape it must have.

    `is_known` is False for a weight of ours that the source has no name for; the name is then ours, in brackets.
    """

    name: str
    shape: tuple[int, ...]
    is_known: bool = True


@dataclass(frozen=True)
class Naming:
    """The names of a source.

    Args:
        layers: Path of our layer to the names of the source's; {i} is the index of a block. There are several names
            where our layer fuses several of the source's, such as queries, keys and values. A name that does not end
            with a separator is that of an array.
        leaves: Last part of our weight's path to the source's.
        weights: Path of our weight to the name of the source's array.
        layout: "heads": kernels are (in, out), in attention (D, K, d) and (K, d, D). "torch": kernels are (out, in)
            and (out, in, height, width).
        resnet: Names of the weights of a ResNet; None if the source has no ResNets.
    """

    layers: dict[str, tuple[str, ...]]
    leaves: dict[str, str]
    weights: dict[str, str]
    layout: str
    resnet: ResNetNaming | None = None

    def source_arrays(self, name: str, shape: Sequence[int], num_heads: int | None = None) -> tuple[SourceArray, ...]:
        """The source's arrays that hold our weight of this path and shape."""
        shape = tuple(shape)
        if name in self.weights:
            return (SourceArray(self.weights[name], shape),)
        path, _, leaf = name.rpartition("/")
        block = re.search(r"(?<=block_)\d+", path)
        layer = path.replace(f"block_{block[0]}", "block_{i}", 1) if block else path
        if layer not in self.layers or leaf not in self.leaves:
            resnet_name = self.resnet.name(name) if self.resnet else None
            if resnet_name is None:
                return (SourceArray(f"({name})", shape, is_known=False),)
            return (SourceArray(resnet_name, self._source_shape(path, leaf, shape, num_heads)),)
        names = self.layers[layer]
        part_shape = (*shape[:-1], shape[-1] // len(names))
        source_shape = self._source_shape(layer, leaf, part_shape, num_heads)
        index = block[0] if block else ""
        return tuple(
            SourceArray((part + self.leaves[leaf] * part.endswith((".", "/"))).replace("{i}", index), source_shape)
            for part in names
        )

    def our_names(self, source_name: str) -> tuple[str, ...]:
        """Paths of our layers and weights that a source's array may belong to; none for those of a ResNet."""
        paths = [path for path, name in self.weights.items() if name == source_name]
        for path, names in self.layers.items():
            for name in names:
                match = re.match(re.escape(name).replace(r"\{i\}", r"(\d+)"), source_name)
                if match:
                    paths.append(path.replace("{i}", match[1]) if "{i}" in path else path)
        return tuple(paths)

    def from_source(self, arrays: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
        """Our weight of this shape from the source's arrays, whose shapes have been checked."""
        if self.layout == "torch":
            arrays = [_from_torch(array) for array in arrays]
        part_shape = (*shape[:-1], shape[-1] // len(arrays))
        arrays = [array.reshape(part_shape) for array in arrays]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)

    def to_source(self, weight: np.ndarray, targets: Sequence[SourceArray]) -> list[np.ndarray]:
        """The source's arrays from our weight."""
        parts = np.split(weight, len(targets), axis=-1)
        if self.layout == "torch":
            parts = [_to_torch(part) for part in parts]
        return [np.ascontiguousarray(part.reshape(target.shape)) for part, target in zip(parts, targets)]

    def _source_shape(self, layer, leaf, shape, num_heads):
        if self.layout == "torch" and leaf == "kernel":
            return shape[::-1] if len(shape) == 2 else (shape[3], shape[2], shape[0], shape[1])
        if self.layout == "heads" and re.search(r"attention/qkv$|pooling/(query|key|value)$", layer):
            return (*shape[:-1], num_heads, shape[-1] // num_heads)  # (D, K, d) or (K, d)
        if self.layout == "heads" and leaf == "kernel" and re.search(r"attention/out$|pooling/out$", layer):
            return (num_heads, shape[0] // num_heads, shape[1])  # (K, d, D)
        return shape


def _from_torch(array):
    """PyTorch's order of axes to Keras's."""
    if array.ndim == 2:
        return array.T
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array


def _to_torch(array):
    if array.ndim == 2:
        return array.T
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array


@dataclass(frozen=True)
class Source:
    """A project that publishes Vision Transformers, and what it leaves implicit in its files.

    Args:
        name: Short name, such as "timm".
        title: Name in messages.
        naming: Names and shapes of its arrays.
        gelu, epsilon: Arguments of its models unless the file has others; None for a ResNet, which has no GELU and
            whose `form` sets epsilon.
        resample: Default of how it resamples positions, see `resample_grid`.
        preprocessing: Fields of `Preprocessing` that differ from the defaults unless the file has others.
    """

    name: str
    title: str
    naming: Naming
    gelu: str | None = None
    epsilon: float | None = None
    resample: str = "corners"
    preprocessing: dict = field(default_factory=dict)
