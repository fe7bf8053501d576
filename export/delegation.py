"""What the XNNPACK delegate takes of a .tflite file, asked of LiteRT's interpreter on this machine."""

from dataclasses import dataclass

from ai_edge_litert.interpreter import Interpreter


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


def delegation(interpreter: Interpreter, num_operations: int) -> Delegation:
    """Reads the split from an interpreter with allocated tensors.

    The delegate adds one node for each piece behind the file's own operations, with the tensors that enter and leave
    the piece; the operations inside are found by walking back from its outputs to its inputs.

    Args:
        interpreter: Of the file, `allocate_tensors` called.
        num_operations: Of the file's main subgraph.
    """
    nodes = interpreter._get_ops_details()  # not public, but the only place that tells
    operations, pieces = nodes[:num_operations], nodes[num_operations:]
    producers = {int(tensor): node["index"] for node in operations for tensor in node["outputs"]}
    delegated = set()
    for piece in pieces:
        entering, waiting = set(map(int, piece["inputs"])), list(map(int, piece["outputs"]))
        while waiting:
            tensor = waiting.pop()
            number = producers.get(tensor)
            if tensor not in entering and number is not None and number not in delegated:
                delegated.add(number)
                waiting += map(int, operations[number]["inputs"])
    left = tuple(number for number in range(num_operations) if number not in delegated)
    return Delegation(len(pieces), tuple(sorted(delegated)), left)
