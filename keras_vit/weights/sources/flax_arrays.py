"""Arrays of Flax's files under one set of names, whatever version of Flax and kind of training state wrote them."""

import re

from keras_vit.weights.files import Tensors

# Before its linen API, Flax numbered all submodules of a block in one sequence; linen numbers each kind from 0.
PRE_LINEN = {
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "LayerNorm_2": "LayerNorm_1",
    "MlpBlock_3": "MlpBlock_0",
}
_PREFIXES = ("params/", "opt/target/", "target/")
# Of the image tower in files of SigLIP, beside which are that of texts, a temperature and a bias.
_TOWERS = ("params/img/", "img/")
_STACKED = "Transformer/encoderblock/"


def linen_arrays(tensors: Tensors) -> Tensors:
    """The model's arrays under linen names, one for each block.

    Removes the prefixes of training states and the arrays of optimizers, renames what was written before linen, splits
    the stacked arrays of big_vision's scanned models, and drops the leading axes of (1, 1, 1, C) normalizations.
    """
    prefix = next((p for p in (*_TOWERS, *_PREFIXES) if any(name.startswith(p) for name in tensors.shapes)), "")
    kept = {name: shape for name, shape in tensors.shapes.items() if name.startswith(prefix)}
    tensors = Tensors(tensors.path, kept, tensors.read)

    def rename(name):
        name = without_counter(name.removeprefix(prefix))
        return "/".join(PRE_LINEN.get(part, part) for part in name.split("/"))

    return _unstacked(_squeezed(tensors.renamed(rename)))


def is_tower(tensors: Tensors) -> bool:
    """Whether a file has the towers of a SigLIP."""
    return any(name.startswith(_TOWERS) for name in tensors.shapes)


def pre_linen_name(name: str) -> str:
    """The name of an array before linen."""
    old = {new: old for old, new in PRE_LINEN.items()}
    return "/".join(old.get(part, part) for part in name.split("/"))


def without_counter(name: str) -> str:
    """A name without the counter that some files of gs://bit_models have in it: standardized_conv2d_17."""
    return re.sub(r"/standardized_conv2d_\d+/", "/standardized_conv2d/", name)


def _squeezed(tensors):
    """Normalizations stored as (1, 1, 1, C) as (C,), and a head that is a convolution, (1, 1, C, classes), as dense."""

    def squeezed(name, shape):
        rank = 2 if name == "resnet/head/conv2d/kernel" else 1
        is_one = len(shape) == 4 and (rank == 2 or not name.endswith("kernel")) and set(shape[:-rank]) == {1}
        return shape[-rank:] if is_one else shape

    shapes = {name: squeezed(name, shape) for name, shape in tensors.shapes.items()}
    return Tensors(tensors.path, shapes, lambda name: tensors.read(name).reshape(shapes[name]))


def _unstacked(tensors):
    """Arrays of all blocks in one, (depth, ...), as one array for each block."""
    stacked = {name: shape for name, shape in tensors.shapes.items() if name.startswith(_STACKED)}
    if not stacked:
        return tensors
    slices = {
        name.replace(_STACKED, f"Transformer/encoderblock_{i}/"): (name, i)
        for name, shape in stacked.items()
        for i in range(shape[0])
    }
    shapes = {name: shape for name, shape in tensors.shapes.items() if name not in stacked}
    shapes |= {name: stacked[stack][1:] for name, (stack, _) in slices.items()}
    cache = {}  # each stack is read once, and held with its remaining blocks until the last of them is read

    def read(name):
        if name not in slices:
            return tensors.read(name)
        stack, i = slices[name]
        if stack not in cache:
            cache[stack] = (tensors.read(stack), set(range(stacked[stack][0])))
        array, remaining = cache[stack]
        remaining.discard(i)
        if not remaining:
            del cache[stack]
        return array[i]

    return Tensors(tensors.path, shapes, read)
