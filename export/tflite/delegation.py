"""What the XNNPACK delegate takes of a .tflite file, asked of LiteRT's interpreter on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.tflite.graph import Operation


@dataclass(frozen=True)
class Delegation:
    """How the default interpreter splits the main subgraph between XNNPACK and its own kernels.

    Args:
        partitions: Pieces that XNNPACK runs. Between two of them something else computes.
        delegated: Numbers of the operations inside the pieces.
        left: Numbers of the others.
    """

    partitions: int
    delegated: tuple[int, ...]
    left: tuple[int, ...]


def delegation(path, operations: Sequence[Operation]) -> Delegation:
    """Asks the interpreter of a file.

    The delegate adds one node for each piece behind the file's own operations, with the tensors that enter and leave
    the piece; the operations inside are found by walking back from its outputs to its inputs.

    Args:
        path: The file.
        operations: All that `read_graph` found in it.

    Raises:
        RuntimeError: The interpreter cannot run the file.
    """
    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    count = sum(operation.subgraph == 0 for operation in operations)
    nodes = interpreter._get_ops_details()  # not public, but the only place that tells
    inside, pieces = nodes[:count], nodes[count:]
    producers = {int(tensor): node["index"] for node in inside for tensor in node["outputs"]}
    delegated = set()
    for piece in pieces:
        entering, waiting = set(map(int, piece["inputs"])), list(map(int, piece["outputs"]))
        while waiting:
            tensor = waiting.pop()
            number = producers.get(tensor)
            if tensor not in entering and number is not None and number not in delegated:
                delegated.add(number)
                waiting += map(int, inside[number]["inputs"])
    left = tuple(number for number in range(count) if number not in delegated)
    return Delegation(len(pieces), tuple(sorted(delegated)), left)
