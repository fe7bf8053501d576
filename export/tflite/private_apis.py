"""Private and experimental APIs of LiteRT and FlatBuffers that the exports need. No other file uses any.

Tested with ai-edge-litert 2.3.0 and flatbuffers 25.12.19;
tests/export/tflite/test_private_apis.py names the one that is missing in another version.
"""

import flatbuffers


def operation_details(interpreter) -> list[dict]:
    """Every node of the first subgraph: {"index", "op_name", "inputs", "outputs"} with indices of tensors.

    Nodes that a delegate added follow the operations of the file. Public methods of `Interpreter` list tensors only.
    """
    return interpreter._get_ops_details()


class AlignedBuilder(flatbuffers.Builder):
    """Aligns byte vectors to 16, the `force_align: 16` of weights in TFLite's schema, which generated Python ignores.

    `Prep` and `CreateNumpyVector` are what generated code calls.
    """

    ALIGNMENT = 16

    def CreateNumpyVector(self, x):
        self.Prep(self.ALIGNMENT, x.nbytes)
        return super().CreateNumpyVector(x)
