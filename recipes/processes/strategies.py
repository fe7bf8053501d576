"""The strategy of a run: a tf.distribute strategy or, with Keras on JAX, all devices; and its batches."""

import functools
import os
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_vit.recipes.data import ImageDataset, count_examples, evaluation_batches
from keras_vit.recipes.data.pipeline import ONE_HOST
from keras_vit.recipes.keras_internals import tensorflow_has_started
from keras_vit.recipes.processes.jax_devices import JOIN_SECONDS, JaxDevices, Strategy, choose_devices, chosen_devices
from keras_vit.recipes.processes.rendezvous import ended_by_signals, wait_for_workers
from keras_vit.recipes.processes.workers import check_workers
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.recipe.errors import RecipeError


def choose_strategy(name: str, join_seconds: int = JOIN_SECONDS) -> Strategy:
    """Returns the strategy of that name; create model, optimizer and metrics in its `scope()`.

    With Keras on JAX, the devices of that name, see `choose_devices`.

    Call it before anything else: workers can join only before TensorFlow has executed an operation.

    Args:
        name: "auto" (the TPU that TensorFlow finds or TPU_NAME names, else the workers of TF_CONFIG, else all GPUs,
            else the CPU), "tpu", "mirrored" (all GPUs of this machine, or all logical CPUs if it has none),
            "multi-worker", or "one-device" (the first GPU, else the CPU).
        join_seconds: How long several processes wait for each other.

    Raises:
        ValueError: Its hardware is missing or does not respond, a process is missing, or its port is in use; or Keras's
            backend is neither TensorFlow nor JAX.
    """
    if (backend := keras.backend.backend()) not in ("tensorflow", "jax"):
        raise ValueError(f"Recipes require KERAS_BACKEND=tensorflow or jax. Received: {backend}")
    if backend == "jax":
        return choose_devices(name, join_seconds)
    if name == "auto":
        name = _detect()
    if name == "tpu":
        return _tpu_strategy(_tpu_name())
    if name == "mirrored":
        return _mirrored_strategy()
    if name == "multi-worker":
        return _multi_worker_strategy(os.environ.get("TF_CONFIG"), join_seconds)
    return tf.distribute.get_strategy()


def strategy_of(model) -> Strategy:
    """The strategy under which a model was created; with Keras on JAX, the devices of this process."""
    return chosen_devices() if keras.backend.backend() == "jax" else model.distribute_strategy


def _detect():
    if os.environ.get("TPU_NAME") or tf.config.list_physical_devices("TPU"):
        return "tpu"
    if os.environ.get("TF_CONFIG"):
        return "multi-worker"
    return "mirrored" if len(tf.config.list_logical_devices("GPU")) > 1 else "one-device"


def _tpu_name():
    """The argument of TensorFlow's resolver: a TPU's name, "grpc://address:8470", or "local" for this machine's TPU."""
    if name := os.environ.get("TPU_NAME"):
        return name
    if tf.config.list_physical_devices("TPU"):
        return "local"
    devices = ", ".join(device.name for device in tf.config.list_physical_devices())
    raise RecipeError(
        f"TensorFlow finds no TPU, only {devices}. On a TPU VM, install vit-for-keras[tpu] (tensorflow-tpu, not "
        "tensorflow) and run `keras-vit doctor`.",
        {"run.strategy": "tpu"},
        {"run.strategy": "auto"},
    )


@functools.cache  # a second initialization would erase the variables on the TPU
def _tpu_strategy(name):
    try:
        return tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver.connect(name))
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ValueError(
            f"The TPU {name!r} does not respond. Run `keras-vit doctor` to find the cause; if there is no TPU, unset "
            f"TPU_NAME. TensorFlow reports: {reason}"
        ) from error


def _mirrored_strategy():
    gpus = tf.config.list_logical_devices("GPU")
    devices = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
    # NCCL and its alternatives require GPUs.
    reduce = None if gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce)


_joined: dict = {}  # a process can join once


def _multi_worker_strategy(tf_config, join_seconds):
    if tf_config in _joined:
        return _joined[tf_config]
    addresses, index = check_workers(tf_config)
    if tensorflow_has_started():  # its own error comes after the wait for the others
        raise ValueError(
            "Several workers must be set up before TensorFlow executes an operation. Call choose_strategy, or start "
            "the recipe, before creating models, tensors and datasets."
        )
    wait_for_workers(addresses, index, join_seconds)
    with ended_by_signals():
        return _joined.setdefault(tf_config, MultiWorkerStrategy())


class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """TensorFlow's strategy with a `reduce` that works for `fit` of Keras 3 (keras-team/keras issue 20585).

    Keras reduces a batch, a nested structure, to learn its shapes, for which this worker's part is enough; and it
    reduces the metrics of a step, scalars, along an axis that they do not have.
    """

    def reduce(self, reduce_op, value, axis):
        if tf.nest.is_nested(value):
            return tf.nest.map_structure(lambda part: self.experimental_local_results(part)[0], value)
        scalar = self.experimental_local_results(value)[0].shape.rank == 0
        return super().reduce(reduce_op, value, axis=None if scalar else axis)


def shard_batches(strategy: Strategy, batches: Callable, batch_size: int):
    """Data for `fit` or `evaluate` under a strategy: the hosts together read the batches that a single host would.

    Keras would let every host decode all batches and discard all but its part.

    Args:
        batches: Function from a host, (i, n), to the tf.data.Dataset of the i-th of n equal parts of every batch.
    """
    if isinstance(strategy, JaxDevices):
        return batches((strategy.process, strategy.processes))
    if not isinstance(strategy, (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.TPUStrategy)):
        return batches(ONE_HOST)

    def batches_of_host(context):
        host = (context.input_pipeline_id, context.num_input_pipelines)
        replica_batch = context.get_per_replica_batch_size(batch_size)
        return batches(host).rebatch(replica_batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(batches_of_host)


def shard_evaluation(strategy: Strategy, data: Data, dataset: ImageDataset, split: str):
    """Batches of a split for `evaluate` under a strategy, and their number, which a sharded dataset does not know."""
    sharded = shard_batches(strategy, lambda host: evaluation_batches(data, dataset, split, host=host), data.batch_size)
    return sharded, -(-count_examples(dataset, split) // data.batch_size)
