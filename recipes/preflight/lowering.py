"""Lowers a TensorFlow step to HLO, the input of a TPU's compiler, and finds operations that a TPU does not support."""

import re
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import tensorflow as tf
from keras import tree

from keras_vit.keras_internals import lowering_for_tpu
from keras_vit.recipes.training.keras_internals import function_graph, jax_state

HOST_CALLS = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "HostComputeMlir", "PrintV2", "Print"}
DATA_DEPENDENT_SHAPES = {
    "Where",
    "Unique",
    "UniqueV2",
    "UniqueWithCounts",
    "UniqueWithCountsV2",
    "DynamicPartition",
    "ListDiff",
}
CONTROL = {"Const", "NoOp", "Assert", "Placeholder"}


@dataclass(frozen=True)
class HloProgram:
    """A lowered step.

    Attributes:
        hlo: A serialized HloModuleProto; b"" if there are problems.
        problems: Why the step cannot run on a TPU, each with the layer that causes it.
        partitioned: Whether it is the program of all devices together, which the compiler partitions, as with Keras on
            JAX, and not that of one of them.
    """

    hlo: bytes
    problems: tuple[str, ...]
    partitioned: bool = False


def lower_to_hlo(step, specs) -> HloProgram:
    """Traces a step and lowers it to HLO without any data.

    Args:
        step: A function of tensors, see `step_functions`.
        specs: The arguments of `step` as a nested structure of tf.TensorSpec.

    Raises:
        ValueError: A shape is not fully defined.
    """
    flat_specs = tree.flatten(specs)
    for spec in flat_specs:
        if not spec.shape.is_fully_defined():
            raise ValueError(f"A TPU program requires static shapes. Received: {spec.shape}. Set the batch size.")
    function = tf.function(
        lambda *values: step(*tree.pack_sequence_as(specs, values)), autograph=False, jit_compile=True
    )
    graph = function.get_concrete_function(*flat_specs).graph
    problems = tuple(dict.fromkeys(_problems(graph)))
    if problems:
        return HloProgram(b"", problems)
    try:
        return HloProgram(function.experimental_get_compiler_ir(*flat_specs)(stage="hlo_serialized"), ())
    except (tf.errors.OpError, ValueError, TypeError) as error:
        return HloProgram(b"", (_reason(str(error)),))


def _problems(graph):
    """Messages about operations of a graph and its inner graphs that a TPU does not support."""
    for operation in graph.get_operations():
        where = f"in {layer_path(operation.name)}"
        if operation.type in HOST_CALLS:
            yield (
                f"{operation.type} {where} calls back to the host in every step, which a TPU does not support: use "
                "keras.ops or TensorFlow operations, or move it to the data pipeline."
            )
        if operation.type in DATA_DEPENDENT_SHAPES:
            yield (
                f"{operation.type} {where} has a data-dependent output shape, but TPU shapes are static: use a mask, "
                "tf.where with three arguments, or fixed sizes."
            )
        if operation.type in CONTROL:
            continue
        for output in operation.outputs:
            if output.dtype == tf.string:
                yield (
                    f"{operation.type} {where} outputs strings, which a TPU does not support: move it to the data "
                    "pipeline."
                )
            elif output.dtype in (tf.float64, tf.complex128):
                yield (
                    f"{operation.type} {where} computes in {output.dtype.name}, which a TPU does not support: cast to "
                    "float32. A float64 NumPy array may be the cause."
                )
        for value in operation.op_def.attr:
            inner = operation.get_attr(value.name) if value.type == "func" else None
            if inner and (inner_graph := function_graph(graph, inner.name)):
                yield from _problems(inner_graph)


def layer_path(name: str) -> str:
    """ "vit_1/encoder_1/block_3_1/mlp_1/Add" -> "vit/encoder/block_3/mlp", the Keras layer path."""
    parts = [part for part in name.split("/")[:-1] if not re.match(r"(gradient_tape|while|cond|Stateful|body)", part)]
    return "/".join(re.sub(r"_\d+$", "", part) for part in parts) or "the step itself"


def _reason(error):
    """The informative part of a lowering error, with the layer."""
    unsupported = re.findall(r"(\w+) \(No registered '\w+' OpKernel[^)]*\)\{\{node ([^}]+)\}\}", error)
    if unsupported:
        found = ", ".join(dict.fromkeys(f"{operation} in {layer_path(node)}" for operation, node in unsupported))
        return f"XLA has no kernel for: {found}. Use keras.ops or other TensorFlow operations."
    return f"XLA cannot lower the step: {' '.join(error.split())[:600]}"


AXIS = "batch"


def lower_with_jax(model, kind: str, specs, replicas: int) -> HloProgram:
    """Traces the step that `fit`, `evaluate` or `predict` runs, for a TPU, without any data.

    It is one program for all devices: weights are copies, batches are split (`keras.distribution.DataParallel`).

    Args:
        model: Compiled, with a built optimizer.
        kind: "training", "evaluation" or "inference". Only training is lowered for several devices.
        specs: The batch of one device, a nested structure of tf.TensorSpec.
        replicas: Number of devices that train together.
    """
    import jax
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

    devices = replicas if kind == "training" else 1
    mesh = AbstractMesh((devices,), (AXIS,))
    copies, split = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), (AXIS,)))

    def batch(spec):
        first, *rest = spec.shape.as_list()
        return jax.ShapeDtypeStruct((devices * first, *rest), spec.dtype.as_numpy_dtype, sharding=split)

    def copy(array):
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=copies)

    step, state = jax_state(model, kind, specs)
    data = tree.map_structure(batch, specs)
    with _shardings_in_hlo(jax.config), _unfiltered_errors(), lowering_for_tpu():
        program = jax.jit(step, donate_argnums=0 if kind == "training" else ())
        try:
            lowered = program.trace(jax.tree.map(copy, state), data).lower(lowering_platforms=("tpu",))
        except (ValueError, TypeError, NotImplementedError) as error:  # JAX's own errors are subclasses
            return HloProgram(b"", (str(error).partition("\n")[0],))
    return HloProgram(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto(), (), partitioned=devices > 1)


@contextmanager
def _shardings_in_hlo(config):
    """Makes JAX write shardings as an HloModuleProto holds them; those of its default partitioner are lost there."""
    before = config.jax_use_shardy_partitioner
    config.update("jax_use_shardy_partitioner", False)
    try:
        yield
    finally:
        config.update("jax_use_shardy_partitioner", before)


@contextmanager
def _unfiltered_errors():
    """Keeps Keras from building errors of JAX again with the name of the layer, which fails for some."""
    filtered = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    try:
        yield
    finally:
        if filtered:
            keras.config.enable_traceback_filtering()
