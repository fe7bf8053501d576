"""Reads and writes the flatbuffer of a .tflite file: integrity checks, signatures, and aligned weights."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.tflite.private_apis import AlignedBuilder

IDENTIFIER = b"TFL3"  # bytes 4 to 8 of every file
MAX_FLATBUFFER = 2**31 - 2**24  # bytes of weights: offsets have 31 bits; some space remains for the graph
MIN_RUNTIME = b"min_runtime_version"  # entry of the metadata: TensorFlow's version, filled up with zeros
# Raised by the flatbuffers library and the generated schema when offsets point outside the file.
DAMAGE = (ValueError, TypeError, IndexError, AttributeError, OverflowError, struct.error)
DTYPES = {number: name.lower() for name, number in vars(schema.TensorType).items() if isinstance(number, int)}


@dataclass(frozen=True)
class SignatureTensor:
    """An input or output of a signature."""

    name: str
    shape: tuple[int, ...]  # with the batch axis
    dtype: str
    quantization: tuple[float, int] | None = None  # scale and zero_point: scale * (stored - zero_point); of integers

    def __str__(self):
        stored = "" if self.quantization is None else ", {:.6g} * (stored - {})".format(*self.quantization)
        return f"{self.name} {self.shape} {self.dtype}{stored}"


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs in the order of the subgraph."""

    subgraph: int
    inputs: tuple[SignatureTensor, ...]
    outputs: tuple[SignatureTensor, ...]


def check_not_folder(path) -> Path:
    """Returns the path; raises ValueError if it is a folder, with the .tflite files inside."""
    path = Path(path)
    if path.is_dir():
        inside = ", ".join(map(str, sorted(path.glob("*.tflite"))))
        advice = f"Pass a file: {inside}." if inside else "A SavedModel must be exported first."
        raise ValueError(f"{path} is a folder, not a .tflite file. {advice}")
    return path


def check_tflite(path) -> Path:
    """Returns the path of a complete .tflite file."""
    path = check_not_folder(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path.absolute()}. keras-vit export writes .tflite files.")
    with open(path, "rb") as file:
        head = file.read(8)
    if not head:
        raise ValueError(f"{path} is empty (0 bytes). Export it again.")
    if head[4:] != IDENTIFIER:
        raise ValueError(
            f"{path} is not a .tflite file. Expected: {IDENTIFIER!r} in bytes 4 to 8. Received: {head[4:]!r}. "
            "A .keras file or a SavedModel must be exported first."
        )
    try:
        # Runs the flatbuffer's verifier: Python readers would read past the end of a truncated file.
        Interpreter(model_path=str(path))
    except ValueError as error:
        reason = str(error).strip()
        if "Didn't find op" in reason:
            raise ValueError(f"{path} requires a newer LiteRT than is installed: {reason}") from None
        raise ValueError(f"{path} is damaged, perhaps truncated ({reason}). Export or copy it again.") from None
    return path


def unpack_model(content) -> schema.ModelT:
    """The model as objects whose weights are views into `content` (bytes, or a uint8 array).

    Weights stored after the flatbuffer (large models) are in `buffer.data` as well.
    """
    if not len(content):
        raise ValueError("it has zero bytes")
    if bytes(content[4:8]) != IDENTIFIER:
        raise ValueError(f"it is not a TFLite model: bytes 4 to 8 are {bytes(content[4:8])!r}, not {IDENTIFIER!r}")
    try:
        model = schema.ModelT.InitFromPackedBuf(content)
        subgraphs, buffers = len(model.subgraphs), len(model.buffers)
        tensors = [tensor for subgraph in model.subgraphs for tensor in subgraph.tensors]
    except DAMAGE as error:
        raise ValueError(f"it is damaged or truncated at {len(content)} bytes") from error
    for code in model.operatorCodes or ():  # files of old converters have the deprecated field alone
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    external = [
        (holder, data, getattr(holder, offset), getattr(holder, size))
        for holder, data, offset, size in _external_data(model)
    ]
    ends = [offset + size for *_, offset, size in external]
    if not subgraphs or any(tensor.buffer >= buffers for tensor in tensors) or max(ends, default=0) > len(content):
        raise ValueError(f"it is damaged or truncated at {len(content)} bytes")
    for holder, data, offset, size in external:
        setattr(holder, data, np.frombuffer(content, "uint8", size, offset))
    return model


def read_signatures(model: schema.ModelT) -> dict[str, Signature]:
    """Name -> signature; a model without signatures has one, "", with the names of its tensors."""
    if not model.signatureDefs:
        return {"": _signature(model, 0, {})}
    arrays = {}
    for signature in model.signatureDefs:
        names = {item.tensorIndex: item.name.decode() for item in chain(signature.inputs, signature.outputs)}
        arrays[signature.signatureKey.decode()] = _signature(model, signature.subgraphIndex, names)
    return arrays


def operator_code(model: schema.ModelT, operator: schema.OperatorT) -> int:
    """The kind of an operator, one of `schema.BuiltinOperator`."""
    return model.operatorCodes[operator.opcodeIndex].builtinCode


def operators_of_kind(model: schema.ModelT, code: int) -> list[tuple[schema.SubGraphT, schema.OperatorT]]:
    """The operators of a kind, one of `schema.BuiltinOperator`, each with its subgraph."""
    return [
        (graph, operator)
        for graph in model.subgraphs
        for operator in graph.operators
        if operator_code(model, operator) == code
    ]


def move_to_front(model: schema.ModelT, name: str):
    """Moves a signature and its subgraph to the front, if there is such a signature.

    Runtimes that use no names (MediaPipe, `Interpreter.run` of Android) run the first subgraph; the converter sorts
    signatures alphabetically.
    """
    definitions = [item for item in model.signatureDefs or () if item.signatureKey == name.encode()]
    if not definitions:
        return
    # IF and WHILE refer to subgraphs by number too, but never to one of a signature.
    old, graphs = definitions[0].subgraphIndex, model.subgraphs
    graphs[0], graphs[old] = graphs[old], graphs[0]
    moved = {0: old, old: 0}
    for item in model.signatureDefs:
        item.subgraphIndex = moved.get(item.subgraphIndex, item.subgraphIndex)
    model.signatureDefs.sort(key=lambda item: item is not definitions[0])


def pack_model(model: schema.ModelT) -> bytes:
    """The bytes of a model of `unpack_model`, with all weights in the flatbuffer: most readers know no others.

    If it would be too large, weights that were stored after it follow the new one.
    """
    external = [(*fields, getattr(fields[0], fields[1])) for fields in _external_data(model)]
    if external and _size(model) < MAX_FLATBUFFER:
        for holder, _, offset, size, _ in external:
            setattr(holder, offset, 0)
            setattr(holder, size, 0)
        external = []
    for holder, data, *_ in external:
        setattr(holder, data, None)
    chunks = [_pack(model)]
    position = len(chunks[0])
    for holder, _, offset, size, weights in external:
        gap = -position % AlignedBuilder.ALIGNMENT
        chunks += [bytes(gap), weights]
        setattr(holder, offset, position + gap)
        setattr(holder, size, len(weights))
        position += gap + len(weights)
    if external:
        chunks[0] = _pack(model)  # of the same length: offsets and sizes are 64-bit
    for holder, data, *_, weights in external:
        setattr(holder, data, weights)
    return b"".join(chunks)


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


def _external_data(model) -> Iterator[tuple]:
    """(object, its fields of data, offset and size) of data after the flatbuffer. The offsets 0 and 1 mean none."""
    for buffer in model.buffers:
        if buffer.offset > 1:
            yield buffer, "data", "offset", "size"
    for operator in chain.from_iterable(subgraph.operators or () for subgraph in model.subgraphs):
        if operator.largeCustomOptionsOffset > 1:
            yield operator, "customOptions", "largeCustomOptionsOffset", "largeCustomOptionsSize"


def _size(model) -> int:
    return sum(np.size(buffer.data) + 64 for buffer in model.buffers if buffer.data is not None)


def _pack(model) -> bytes:
    for code in model.operatorCodes or ():  # as the schema requires, for readers of the old field
        code.deprecatedBuiltinCode = min(code.builtinCode, schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES)
    weights = _size(model)
    try:
        builder = AlignedBuilder(weights + 2**20)  # large enough: growing would copy the weights several times
        builder.Finish(model.Pack(builder), IDENTIFIER)
    except flatbuffers.builder.BuilderSizeError as error:
        raise ValueError(
            f"The flatbuffer of a TFLite file has at most 2 GB. Received: {weights / 1e9:.2f} GB of weights. Quantize "
            "the model, or convert it with weights after the flatbuffer."
        ) from error
    return bytes(builder.Output())
