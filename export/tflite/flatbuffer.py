"""The flatbuffer of a .tflite file: what goes in and out, and writing it again with every weight where it must lie."""

import struct
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

IDENTIFIER = b"TFL3"  # bytes 4 to 8 of every file
ALIGNMENT = 16  # bytes, that the schema asks for weights
# What the flatbuffers library and the generated schema raise when offsets point out of the bytes.
DAMAGE = (ValueError, TypeError, IndexError, AttributeError, OverflowError, struct.error)
DTYPES = {number: name.lower() for name, number in vars(schema.TensorType).items() if isinstance(number, int)}


@dataclass(frozen=True)
class SignatureTensor:
    """What a signature takes or returns.

    Args:
        name: In the signature.
        shape: With the batch.
        dtype: Such as "float32" or "uint8".
        quantization: (scale, zero_point): the value is scale * (stored - zero_point); None for floats.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: tuple[float, int] | None = None

    def __str__(self):
        stored = "" if self.quantization is None else ", {:.6g} * (stored - {})".format(*self.quantization)
        return f"{self.name} {self.shape} {self.dtype}{stored}"


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs in the order of the subgraph."""

    subgraph: int
    inputs: tuple[SignatureTensor, ...]
    outputs: tuple[SignatureTensor, ...]


def check_no_folder(path) -> Path:
    """Returns the path; raises ValueError if it is a folder."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a .tflite file. A SavedModel must be exported first.")
    return path


def unpack_model(content) -> schema.ModelT:
    """The model as objects whose weights are views into `content` (bytes, or a uint8 array).

    Raises:
        ValueError: `content` is empty, is no TFLite model, or was cut short.
    """
    if not len(content):
        raise ValueError("it has zero bytes")
    if bytes(content[4:8]) != IDENTIFIER:
        raise ValueError(f"it is no TFLite model: bytes 4 to 8 are {bytes(content[4:8])!r} instead of {IDENTIFIER!r}")
    try:
        model = schema.ModelT.InitFromPackedBuf(content)
        subgraphs, buffers = len(model.subgraphs), len(model.buffers)
        tensors = [tensor for subgraph in model.subgraphs for tensor in subgraph.tensors]
    except DAMAGE as error:
        raise ValueError(f"it is damaged or was cut short at {len(content)} bytes") from error
    ends = [getattr(holder, offset) + getattr(holder, size) for holder, offset, size in _kept_outside(model)]
    if not subgraphs or any(tensor.buffer >= buffers for tensor in tensors) or max(ends, default=0) > len(content):
        raise ValueError(f"it is damaged or was cut short at {len(content)} bytes")
    return model


def signatures(model: schema.ModelT) -> dict[str, Signature]:
    """Of each name; a model without signatures has one, "", with the names of its tensors."""
    if not model.signatureDefs:
        return {"": _signature(model, 0, {})}
    found = {}
    for signature in model.signatureDefs:
        names = {item.tensorIndex: item.name.decode() for item in chain(signature.inputs, signature.outputs)}
        found[signature.signatureKey.decode()] = _signature(model, signature.subgraphIndex, names)
    return found


def put_first(model: schema.ModelT, name: str):
    """Makes a signature and its subgraph the first: what runs a file without names (MediaPipe, `Interpreter.run` of
    Android) takes that one, and the converter orders them by the alphabet. Nothing is done without such a signature.
    """
    found = [item for item in model.signatureDefs or () if item.signatureKey == name.encode()]
    if not found:
        return
    # Operations call subgraphs by number too (IF, WHILE), but none that is a signature's.
    old, graphs = found[0].subgraphIndex, model.subgraphs
    graphs[0], graphs[old] = graphs[old], graphs[0]
    moved = {0: old, old: 0}
    for item in model.signatureDefs:
        item.subgraphIndex = moved.get(item.subgraphIndex, item.subgraphIndex)
    model.signatureDefs.sort(key=lambda item: item is not found[0])


def pack_model(model: schema.ModelT, content) -> bytes:
    """The bytes of a model that `unpack_model` made of `content`.

    Weights that lie behind the flatbuffer (models of 2 GB and more) are written behind the new one.

    Raises:
        ValueError: The flatbuffer would pass 2 GB, the most that its offsets reach.
    """
    outside = []
    for holder, offset, size in _kept_outside(model):
        start = getattr(holder, offset)
        outside.append((holder, offset, bytes(content[start : start + getattr(holder, size)])))
    parts = [_pack(model)]
    if not outside:
        return parts[0]
    at = len(parts[0])  # other offsets of 64 bits do not change it
    for holder, offset, data in outside:
        gap = -at % ALIGNMENT
        parts += [bytes(gap), data]
        setattr(holder, offset, at + gap)
        at += gap + len(data)
    parts[0] = _pack(model)
    return b"".join(parts)


def _signature(model, subgraph: int, names: dict) -> Signature:
    graph = model.subgraphs[subgraph]
    inputs, outputs = (
        tuple(_tensor(graph.tensors[index], names.get(index)) for index in side)
        for side in (graph.inputs, graph.outputs)
    )
    return Signature(subgraph, inputs, outputs)


def _tensor(tensor: schema.TensorT, name: str | None) -> SignatureTensor:
    quantization, scales = None, getattr(tensor.quantization, "scale", None)
    if scales is not None and len(scales) == 1:
        quantization = (float(scales[0]), int(tensor.quantization.zeroPoint[0]))
    shape = () if tensor.shape is None else tuple(int(side) for side in tensor.shape)
    return SignatureTensor(name or (tensor.name or b"").decode(), shape, DTYPES[tensor.type], quantization)


def _kept_outside(model):
    """What is named by a place in the file: its object, and the fields of place and size. Places 0 and 1 mean none."""
    for buffer in model.buffers:
        if buffer.offset > 1:
            yield buffer, "offset", "size"
    for operator in chain.from_iterable(subgraph.operators or () for subgraph in model.subgraphs):
        if operator.largeCustomOptionsOffset > 1:
            yield operator, "largeCustomOptionsOffset", "largeCustomOptionsSize"


class _Builder(flatbuffers.Builder):
    """The schema's `force_align: 16` of weights, which generated Python code leaves out."""

    def CreateNumpyVector(self, x):
        self.Prep(ALIGNMENT, x.nbytes)
        return super().CreateNumpyVector(x)


def _pack(model) -> bytes:
    weights = sum(np.size(buffer.data) + 64 for buffer in model.buffers if buffer.data is not None)
    try:
        builder = _Builder(weights + 2**20)  # growing would copy them several times
        builder.Finish(model.Pack(builder), IDENTIFIER)
    except flatbuffers.builder.BuilderSizeError as error:
        raise ValueError(
            f"A TFLite file keeps at most 2 GB of weights in its flatbuffer; these have {weights / 1e9:.2f} GB. "
            "Quantize the model, or convert it with weights behind the flatbuffer."
        ) from error
    return bytes(builder.Output())
