"""How a peer names and shapes what is one of our weights. D width, K heads, d head width (D / K)."""

import re
from dataclasses import dataclass

import numpy as np

from keras_vit.weights.resnet_names import resnet_source_name


@dataclass(frozen=True)
class Piece:
    """An array of a peer's file: its name and the shape it must have."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Naming:
    """A peer's names.

    Args:
        parts: Our layer's path to the peer's; {i} is the number of a block. Several names where ours holds theirs side
            by side, as the fused queries, keys and values. One that ends without a separator is a whole name.
        leaves: Last part of our weight's path to the peer's.
        fixed: Whole paths to whole names.
        layout: "heads": kernels (in, out), in attention (D, K, d) and (K, d, D). "torch": kernels (out, in) and
            (out, in, height, width).
        resnet: Form of the names of a ResNet, see `resnet_source_name`; None if the peer has none.
    """

    parts: dict[str, tuple[str, ...]]
    leaves: dict[str, str]
    fixed: dict[str, str]
    layout: str
    resnet: str | None = None

    def pieces(self, name: str, shape: tuple[int, ...], num_heads: int | None = None) -> tuple[Piece, ...]:
        """The peer's arrays that make our weight; its own name in brackets if the peer has nothing like it."""
        shape = tuple(shape)
        if name in self.fixed:
            return (Piece(self.fixed[name], shape),)
        path, _, leaf = name.rpartition("/")
        block = re.search(r"(?<=block_)\d+", path)
        key = path.replace(f"block_{block[0]}", "block_{i}", 1) if block else path
        if key not in self.parts or leaf not in self.leaves:
            resnet_name = self._resnet_name(name)
            wanted = self._their_shape(path, leaf, shape, num_heads) if resnet_name else shape
            return (Piece(resnet_name or f"({name})", wanted),)
        theirs = self.parts[key]
        part_shape = (*shape[:-1], shape[-1] // len(theirs))
        wanted = self._their_shape(key, leaf, part_shape, num_heads)
        number = block[0] if block else ""
        return tuple(
            Piece((part + self.leaves[leaf] * part.endswith((".", "/"))).replace("{i}", number), wanted)
            for part in theirs
        )

    def our_names(self, theirs: str) -> tuple[str, ...]:
        """Paths of ours that a peer's array may belong to; none for those of a ResNet."""
        ours = [path for path, name in self.fixed.items() if name == theirs]
        for path, names in self.parts.items():
            for name in names:
                found = re.match(re.escape(name).replace(r"\{i\}", r"(\d+)"), theirs)
                if found:
                    ours.append(path.replace("{i}", found[1]) if "{i}" in path else path)
        return tuple(ours)

    def _resnet_name(self, name):
        try:
            return self.resnet and resnet_source_name(name, self.resnet)
        except ValueError:
            return None

    def to_ours(self, arrays, shape) -> np.ndarray:
        """The peer's arrays, checked already, as our weight of this shape."""
        if self.layout == "torch":
            arrays = [_swapped(array) for array in arrays]
        part_shape = (*shape[:-1], shape[-1] // len(arrays))
        arrays = [array.reshape(part_shape) for array in arrays]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)

    def to_theirs(self, array, pieces) -> list[np.ndarray]:
        """Our weight as the peer's arrays."""
        parts = np.split(array, len(pieces), axis=-1)
        if self.layout == "torch":
            parts = [_swapped_back(part) for part in parts]
        return [np.ascontiguousarray(part.reshape(piece.shape)) for part, piece in zip(parts, pieces)]

    def _their_shape(self, key, leaf, shape, num_heads):
        if self.layout == "torch" and leaf == "kernel":
            return shape[::-1] if len(shape) == 2 else (shape[3], shape[2], shape[0], shape[1])
        if self.layout == "heads" and re.search(r"attention/qkv$|pooling/(query|key|value)$", key):
            return (*shape[:-1], num_heads, shape[-1] // num_heads)  # (D, K, d) or (K, d)
        if self.layout == "heads" and leaf == "kernel" and re.search(r"attention/out$|pooling/out$", key):
            return (num_heads, shape[0] // num_heads, shape[1])  # (K, d, D)
        return shape


def _swapped(array):
    """PyTorch's order of axes to Keras's."""
    if array.ndim == 2:
        return array.T
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array


def _swapped_back(array):
    if array.ndim == 2:
        return array.T
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array
