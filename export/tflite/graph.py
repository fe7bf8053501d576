"""The operations of a .tflite file, its outputs in LiteRT's interpreter, and which operations XNNPACK runs there."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.names import CLASSIFY, INPUT, OUTPUTS
from keras_vit.export.tflite.flatbuffer import DTYPES, check_tflite, unpack_model
from keras_vit.export.tflite.private_apis import operation_details

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
        """The values of a constant as stored, not dequantized."""
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
    version: int = 1

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
    """Reads the operations of all subgraphs, in order."""
    model = unpack_model(check_tflite(path).read_bytes())
    codes = [_code(code) for code in model.operatorCodes or ()]
    constants = [buffer.data if buffer.data is not None and len(buffer.data) else None for buffer in model.buffers]
    operations = []
    for number, graph in enumerate(model.subgraphs):
        tensors = [_tensor(i, tensor, constants[tensor.buffer]) for i, tensor in enumerate(graph.tensors)]
        for index, operator in enumerate(graph.operators or ()):
            name, custom, version = codes[operator.opcodeIndex]
            inputs, outputs = (
                tuple(tensors[i] for i in (indices if indices is not None else ()) if i >= 0)
                for indices in (operator.inputs, operator.outputs)
            )
            operations.append(Operation(index, number, name, custom, inputs, outputs, operator.builtinOptions, version))
    return operations


def _code(code):
    if code.builtinCode == schema.BuiltinOperator.CUSTOM:
        return (code.customCode or b"CUSTOM").decode(), True, code.version
    return _NAMES.get(code.builtinCode, f"BUILTIN_{code.builtinCode}"), False, code.version


def _tensor(index, tensor, data):
    shape = next((found for found in (tensor.shapeSignature, tensor.shape) if found is not None and len(found)), ())
    name = (tensor.name or b"").decode(errors="replace")
    return Tensor(index, name, DTYPES[tensor.type], tuple(int(n) for n in shape), data)


def run_tflite(file, images, signature: str = CLASSIFY, num_threads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Runs a file of `write_tflite`, or its content as bytes, on images (n, H, W, 3) in [0, 255], in its batches.

    Returns:
        The signature's output for each image, (n, ...) float32, and its latency in milliseconds, that of a call divided
        by the batch size, (n,) float64.
    """
    interpreter = _interpreter(file, num_threads=num_threads)
    runner = interpreter.get_signature_runner(signature)
    name = OUTPUTS[signature]
    details, quantization = runner.get_input_details()[INPUT], runner.get_output_details()[name]["quantization"]
    size = details["shape"][0]
    outputs, milliseconds = [], []
    for batch in batches(np.asarray(images), size):
        tensor = as_input(batch, details["dtype"])
        start = time.perf_counter()
        output = runner(**{INPUT: tensor})[name]
        milliseconds += [(time.perf_counter() - start) * 1e3 / size] * size
        outputs.append(dequantize(output, quantization))
    return np.concatenate(outputs)[: len(images)], np.array(milliseconds[: len(images)])


def batches(images, size: int) -> Iterator[np.ndarray]:
    """Batches of images (size, H, W, 3), the last one filled with the last image."""
    for start in range(0, len(images), size):
        yield np.take(images, range(start, start + size), axis=0, mode="clip")


def as_input(images, dtype) -> np.ndarray:
    """Images (B, H, W, 3) in [0, 255] as the input of a file, rounded for an integer `dtype`."""
    return (images if np.dtype(dtype).kind == "f" else np.round(images)).astype(dtype)


def dequantize(values: np.ndarray, quantization) -> np.ndarray:
    """Values of a file's output in float32; `quantization` is (scale, zero point) and counts for integers only."""
    if values.dtype.kind == "f":
        return values.astype("float32", copy=False)
    scale, zero_point = quantization
    return (values.astype("float32") - zero_point) * np.float32(scale)


@dataclass(frozen=True)
class Delegation:
    """How LiteRT's default interpreter divides the first subgraph between XNNPACK and its own kernels."""

    num_partitions: int
    delegated: tuple[int, ...]
    not_delegated: tuple[int, ...]


def read_delegation(file, operations: Sequence[Operation]) -> Delegation:
    """Loads a file on this machine's CPU and reads the delegation.

    The delegate appends one node per partition to the file's operations, with the tensors that enter and leave it. The
    operations of a partition are found by walking back from its outputs to its inputs.

    Args:
        file: The file, or its content as bytes.
        operations: Those of its first subgraph, and perhaps of others, see `read_graph`.
    """
    interpreter = _interpreter(file)
    interpreter.allocate_tensors()
    count = sum(operation.subgraph == 0 for operation in operations)
    nodes = operation_details(interpreter)
    own, partitions = nodes[:count], nodes[count:]
    producers = {int(tensor): node["index"] for node in own for tensor in node["outputs"]}
    delegated: set[int] = set()
    for partition in partitions:
        entering, waiting = set(map(int, partition["inputs"])), list(map(int, partition["outputs"]))
        while waiting:
            tensor = waiting.pop()
            index = producers.get(tensor)
            if tensor not in entering and index is not None and index not in delegated:
                delegated.add(index)
                waiting += map(int, own[index]["inputs"])
    not_delegated = tuple(index for index in range(count) if index not in delegated)
    return Delegation(len(partitions), tuple(sorted(delegated)), not_delegated)


def _interpreter(file, **options):
    source = {"model_content": file} if isinstance(file, bytes) else {"model_path": str(file)}
    return Interpreter(**source, **options)
