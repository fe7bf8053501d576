"""Reads the operations of a .tflite file from its flatbuffer, without running it."""

from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.tflite.flatbuffer import DTYPES, check_tflite, unpack_model

_NAMES = {number: name for name, number in vars(schema.BuiltinOperator).items() if not name.startswith("_")}


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor: `dtype` such as "float32", `shape` with -1 for open axes, `data` the bytes of a constant."""

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray | None

    @property
    def constant(self) -> bool:
        """Whether its values are in the file."""
        return self.data is not None

    def values(self) -> np.ndarray:
        """The values of a constant as stored, not dequantized.

        Raises:
            ValueError: The tensor is not a constant.
        """
        if self.data is None:
            raise ValueError(f"{self.name} is not a constant.")
        return np.frombuffer(self.data.tobytes(), self.dtype).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation: `name` is from TFLite's schema, or a custom operation's own; optional inputs may be missing."""

    index: int
    subgraph: int
    name: str
    custom: bool
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    options: object | None

    @property
    def runtime_inputs(self) -> list[Tensor]:
        """The inputs that are not constants."""
        return [tensor for tensor in self.inputs if not tensor.constant]

    @property
    def location(self) -> str:
        """Number of the operation and name of its output, for reports."""
        place = f"operation {self.index}" + (f" of subgraph {self.subgraph}" if self.subgraph else "")
        # A fused operation has all names, separated by semicolons.
        return f"{place}, {self.outputs[0].name.partition(';')[0]}" if self.outputs else place

    @property
    def hybrid(self) -> bool:
        """Whether it multiplies float activations by constant integer weights: dynamic-range quantization."""
        return (
            self.name in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "BATCH_MATMUL")
            and self.inputs[0].dtype == "float32"
            and self.inputs[1].dtype in ("int8", "int4", "uint8")
        )

    @property
    def dtype(self) -> str:
        """The dtype of its first runtime input; "float32 x int8" for a hybrid operation."""
        tensor = (self.runtime_inputs or self.inputs or self.outputs)[0]
        return f"{tensor.dtype} x {self.inputs[1].dtype}" if self.hybrid else tensor.dtype


def read_graph(path) -> list[Operation]:
    """Reads the operations of all subgraphs, in order.

    Raises:
        ValueError: The file is a folder, empty, of another format, or damaged.
        OSError: The file does not exist.
    """
    content = check_tflite(path).read_bytes()
    model = unpack_model(content)
    codes = [_code(code) for code in model.operatorCodes or ()]
    constants = [_constant(buffer, content) for buffer in model.buffers]
    operations = []
    for number, graph in enumerate(model.subgraphs):
        tensors = [_tensor(i, tensor, constants[tensor.buffer]) for i, tensor in enumerate(graph.tensors)]
        for index, operator in enumerate(graph.operators or ()):
            name, custom = codes[operator.opcodeIndex]
            inputs, outputs = (
                tuple(tensors[i] for i in (indices if indices is not None else ()) if i >= 0)
                for indices in (operator.inputs, operator.outputs)
            )
            operations.append(Operation(index, number, name, custom, inputs, outputs, operator.builtinOptions))
    return operations


def _code(code):
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    if number == schema.BuiltinOperator.CUSTOM:
        return (code.customCode or b"CUSTOM").decode(), True
    return _NAMES.get(number, f"BUILTIN_{number}"), False


def _constant(buffer, content):
    if buffer.offset > 1:  # files of 2 GB and more have their weights after the flatbuffer
        return np.frombuffer(content, "uint8", buffer.size, buffer.offset)
    return buffer.data if buffer.data is not None and len(buffer.data) else None


def _tensor(index, tensor, data):
    shape = next((found for found in (tensor.shapeSignature, tensor.shape) if found is not None and len(found)), ())
    name = (tensor.name or b"").decode(errors="replace")
    return Tensor(index, name, DTYPES[tensor.type], tuple(int(n) for n in shape), data)
