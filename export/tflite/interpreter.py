"""Runs .tflite files in LiteRT's interpreter, and reads how it divides them between XNNPACK and its own kernels."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.names import CLASSIFY, INPUT, OUTPUTS
from keras_vit.export.private_apis import operation_details
from keras_vit.export.tflite.graph import Operation


def run_tflite(path, images, signature: str = CLASSIFY, num_threads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Runs a file of `write_tflite` on images of its size, (n, H, W, 3) in [0, 255], one at a time.

    Returns:
        The signature's output for each image, (n, ...) float32, and the latency of each call in milliseconds, (n,)
        float64.
    """
    interpreter = Interpreter(model_path=str(path), num_threads=num_threads)
    runner = interpreter.get_signature_runner(signature)
    name = OUTPUTS[signature]
    input_details, output_details = runner.get_input_details()[INPUT], runner.get_output_details()[name]
    dtype = input_details["dtype"]
    outputs, milliseconds = [], []
    for image in np.asarray(images):
        tensor = (image if dtype == np.float32 else np.round(image)).astype(dtype)[None]
        start = time.perf_counter()
        output = runner(**{INPUT: tensor})[name]
        milliseconds.append((time.perf_counter() - start) * 1e3)
        outputs.append(_dequantize(output[0], output_details))
    return np.stack(outputs), np.array(milliseconds)


def _dequantize(values, details):
    if details["dtype"] == np.float32:
        return values
    scale, zero_point = details["quantization"]
    return (values.astype("float32") - zero_point) * np.float32(scale)


@dataclass(frozen=True)
class Delegation:
    """How LiteRT's default interpreter divides the first subgraph between XNNPACK and its own kernels.

    Args:
        num_partitions: Number of partitions that XNNPACK runs.
        delegated: Indices of the operations in the partitions.
        not_delegated: Indices of the other operations.
    """

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

    Raises:
        RuntimeError: The interpreter cannot run the file.
    """
    interpreter = Interpreter(**({"model_content": file} if isinstance(file, bytes) else {"model_path": str(file)}))
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
