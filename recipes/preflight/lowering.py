"""Lowers steps to HLO, the input of a TPU's compiler, and finds operations that a TPU does not support."""

import re
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import tensorflow as tf
from keras import tree
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from keras_vit.keras_internals import lowering_for_tpu
from keras_vit.recipes.keras_internals import function_graph, jax_state
from keras_vit.recipes.preflight.live_tensors import layer_name

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


def lower_step(model, kind: str, specs: tuple, replicas: int = 1) -> HloProgram:
    """Traces the step that `fit`, `evaluate` or `predict` runs, for a TPU, without any data.

    Args:
        model: Built; for training and evaluation compiled, with a built optimizer.
        kind: "training", "evaluation" or "inference". Only training is lowered for several devices.
        specs: tf.TensorSpecs of the batch of one device: inputs, then labels and sample weights.
    """
    devices = replicas if kind == "training" else 1
    step = {"training": model.train_step, "evaluation": model.test_step, "inference": model.predict_step}[kind]
    if keras.backend.backend() == "jax":
        sharding = getattr(getattr(model, "optimizer", None), "sharding", lambda shape: None)
        return _lower_with_jax(step, jax_state(model, kind, specs), specs, devices, kind == "training", sharding)
    with _cross_replica_sums(devices):
        return lower_to_hlo(lambda *batch: step(batch), specs)


def lower_to_hlo(step, specs) -> HloProgram:
    """Lowers a function of tensors with TensorFlow."""
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
        where = f"in {_layer(operation.name)}"
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


def _layer(operation: str) -> str:
    """The Keras layer of an operation, by the operation's name."""
    return ("/" in operation and layer_name(operation)) or "the step itself"


def _reason(error):
    """The informative part of a lowering error, with the layer."""
    unsupported = re.findall(r"(\w+) \(No registered '\w+' OpKernel[^)]*\)\{\{node ([^}]+)\}\}", error)
    if unsupported:
        found = ", ".join(dict.fromkeys(f"{operation} in {_layer(node)}" for operation, node in unsupported))
        return f"XLA has no kernel for: {found}. Use keras.ops or other TensorFlow operations."
    return f"XLA cannot lower the step: {' '.join(error.split())[:600]}"


AXIS = "batch"
OPTIMIZER = 2  # its variables are the third group of a training step's state, see `jax_state`


def mesh_of(devices: int):
    """A mesh of devices that are not attached, for JAX."""
    from jax.sharding import AbstractMesh

    return AbstractMesh((devices,), (AXIS,))


def _lower_with_jax(step, state, specs, devices, trains, sharding) -> HloProgram:
    """The program of all devices: weights are copies, batches are split (`keras.distribution.DataParallel`).

    Args:
        sharding: Of the optimizer's variables by their shape, see `ReplicaInvariant`.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    copies, split = (NamedSharding(mesh_of(devices), PartitionSpec(*axes)) for axes in ((), (AXIS,)))

    def batch(spec):
        first, *rest = spec.shape.as_list()
        return jax.ShapeDtypeStruct((devices * first, *rest), spec.dtype.as_numpy_dtype, sharding=split)

    def describe(group, array):
        place = sharding(array.shape) if trains and group == OPTIMIZER else None
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place or copies)

    state = tuple([describe(group, array) for array in arrays] for group, arrays in enumerate(state))
    shardings = jax.tree.map(lambda array: array.sharding, state)
    data = tree.map_structure(batch, specs)
    with _shardings_in_hlo(jax.config), _unfiltered_errors(), lowering_for_tpu():
        ends = (None, shardings) if trains else None
        program = jax.jit(step, donate_argnums=0 if trains else (), out_shardings=ends)
        try:
            lowered = program.trace(state, data).lower(lowering_platforms=("tpu",))
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


@contextmanager
def _cross_replica_sums(replicas: int):
    """Within this context, traced steps sum over replicas as under `TPUStrategy`.

    Optimizers call `all_reduce` of the replica context for the gradients. Without a strategy it would do nothing; here
    it adds XLA's operation.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError("A preflight must be run outside of a strategy's scope.")
    if replicas == 1:
        yield
        return

    def all_reduce(reduce_op, value, options=None):
        if reduce_op != tf.distribute.ReduceOp.SUM:
            raise NotImplementedError(f"all_reduce supports SUM only. Received: {reduce_op}")
        return tf.nest.map_structure(lambda tensor: _xla_sum(tf.convert_to_tensor(tensor), replicas), value)

    context.all_reduce = all_reduce
    try:
        yield
    finally:
        del context.all_reduce


def _xla_sum(value, replicas):
    one_group = [list(range(replicas))]
    return gen_xla_ops.xla_all_reduce(value, group_assignment=one_group, reduce_op="Add", mode="CrossReplica")
