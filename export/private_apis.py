"""Private and experimental APIs of LiteRT, FlatBuffers and tf2onnx that the exports need. No other file uses any.

Tested with ai-edge-litert 2.3.0, flatbuffers 25.12.19, tf2onnx 1.17.0 and onnx 1.23.2;
tests/export/test_private_apis.py names the one that is missing in another version.
"""

import functools

import flatbuffers
import numpy as np


def operation_details(interpreter) -> list[dict]:
    """Every node of the first subgraph: {"index", "op_name", "inputs", "outputs"} with indices of tensors.

    Nodes that a delegate added follow the operations of the file. Public methods of `Interpreter` list tensors only.
    """
    return interpreter._get_ops_details()


def inspectable_interpreter(content: bytes):
    """An interpreter without delegates in which every intermediate tensor can be read after a call.

    Delegates compute whole partitions and store no tensors in between; without `experimental_preserve_all_tensors` the
    memory of a tensor is reused by later ones.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    return Interpreter(
        model_content=content,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        num_threads=2,
    )


class AlignedBuilder(flatbuffers.Builder):
    """Aligns byte vectors to 16, the `force_align: 16` of weights in TFLite's schema, which generated Python ignores.

    `Prep` and `CreateNumpyVector` are what generated code calls.
    """

    ALIGNMENT = 16

    def CreateNumpyVector(self, x):
        self.Prep(self.ALIGNMENT, x.nbytes)
        return super().CreateNumpyVector(x)


@functools.cache
def register_erfc():
    """Adds Erfc, of TensorFlow's exact GELU, to tf2onnx: 1.17 lacks it (tensorflow-onnx, pull request 2463)."""
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            [output], shape, dtype = node.output, ctx.get_shape(node.output[0]), ctx.get_dtype(node.output[0])
            one = ctx.make_const(f"{node.name}/one", np.array(1.0, "float32"))
            ctx.remove_node(node.name)
            erf = ctx.make_node("Erf", [node.input[0]], shapes=[shape], dtypes=[dtype])
            inputs = [one.output[0], erf.output[0]]
            ctx.make_node("Sub", inputs, outputs=[output], name=node.name, shapes=[shape], dtypes=[dtype])
