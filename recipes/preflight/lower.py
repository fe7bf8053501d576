"""From a step in TensorFlow to the program that a TPU's compiler takes, and what in it a TPU cannot do."""

import re
from dataclasses import dataclass

import tensorflow as tf
from keras import tree

HOST_CALLS = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "HostComputeMlir", "PrintV2", "Print"}
# The shapes of their results depend on values.
SIFTING = {"Where", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "DynamicPartition", "ListDiff"}
CONTROL = {"Const", "NoOp", "Assert", "Placeholder"}


@dataclass(frozen=True)
class Program:
    """A step in XLA's form.

    Attributes:
        hlo: A serialized HloModuleProto; b"" if there are problems.
        problems: What keeps it off a TPU, each with the layer that it comes from.
    """

    hlo: bytes
    problems: tuple[str, ...]


def lower(step, specs) -> Program:
    """Traces a step and lowers it for XLA; no batch is made.

    Args:
        step: A function of tensors, see `steps`.
        specs: Its arguments, as tf.TensorSpec, nested.

    Raises:
        ValueError: A batch's shape is not known.
    """
    flat_specs = tree.flatten(specs)
    for spec in flat_specs:
        if not spec.shape.is_fully_defined():
            raise ValueError(f"A TPU's program has one shape. Received a batch of {spec.shape}: say its size.")
    function = tf.function(
        lambda *values: step(*tree.pack_sequence_as(specs, values)), autograph=False, jit_compile=True
    )
    graph = function.get_concrete_function(*flat_specs).graph
    problems = tuple(dict.fromkeys(_problems(graph)))
    if problems:
        return Program(b"", problems)
    try:
        return Program(function.experimental_get_compiler_ir(*flat_specs)(stage="hlo_serialized"), ())
    except (tf.errors.OpError, ValueError, TypeError) as error:
        return Program(b"", (_reason(str(error)),))


def _problems(graph):
    """Sentences about operations of a graph, and of the graphs within it, that a TPU does not have."""
    for operation in graph.get_operations():
        where = f"in {layer_path(operation.name)}"
        if operation.type in HOST_CALLS:
            yield (
                f"{operation.type} {where} calls back to the host in every step, which a TPU cannot wait for: use "
                "keras.ops or TensorFlow operations, or do it in the data pipeline."
            )
        if operation.type in SIFTING:
            yield (
                f"{operation.type} {where} gives a tensor whose shape depends on values, but a TPU's shapes are fixed: "
                "use a mask, tf.where with three arguments, or fixed sizes."
            )
        if operation.type in CONTROL:
            continue
        for output in operation.outputs:
            if output.dtype == tf.string:
                yield f"{operation.type} {where} makes strings, which TPUs do not have: do it in the data pipeline."
            elif output.dtype in (tf.float64, tf.complex128):
                yield (
                    f"{operation.type} {where} computes in {output.dtype.name}, which TPUs do not have: cast to "
                    "float32, or look for a NumPy array of float64."
                )
        for value in operation.op_def.attr:
            inner = operation.get_attr(value.name) if value.type == "func" else None
            found = inner and graph._get_function(inner.name)
            if found is not None and hasattr(found, "graph"):
                yield from _problems(found.graph)


def layer_path(name: str) -> str:
    """ "vit_1/encoder_1/block_3_1/mlp_1/Add" -> "vit/encoder/block_3/mlp", as layers are named in Keras."""
    parts = [part for part in name.split("/")[:-1] if not re.match(r"(gradient_tape|while|cond|Stateful|body)", part)]
    return "/".join(re.sub(r"_\d+$", "", part) for part in parts) or "the step itself"


def _reason(error):
    """The sentence of a failed lowering that says something, with its layer."""
    unsupported = re.findall(r"(\w+) \(No registered '\w+' OpKernel[^)]*\)\{\{node ([^}]+)\}\}", error)
    if unsupported:
        found = ", ".join(dict.fromkeys(f"{operation} in {layer_path(node)}" for operation, node in unsupported))
        return f"XLA has no kernel for: {found}. Use keras.ops or other operations of TensorFlow."
    return f"XLA cannot lower the step: {' '.join(error.split())[:600]}"
