"""Lowers the steps of Keras on JAX to HLO, the input of a TPU's compiler. B images per device."""

from contextlib import contextmanager

import keras
from keras import tree

from keras_vit.keras_internals import lowering_for_tpu
from keras_vit.recipes.preflight.lowering import HloProgram
from keras_vit.recipes.training.keras_internals import jax_state

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
