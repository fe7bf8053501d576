"""The devices of a run: a tf.distribute strategy or, with Keras on JAX, data parallelism over all devices.

With JAX, weights are copies on every device, a batch is split among them, and one program computes the step: its sums
over the batch, and so the gradients, are over all devices (`keras.distribution.DataParallel`).
"""

import functools
import json
import os
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_vit.recipes.data import ImageDataset, count_examples, evaluation_batches
from keras_vit.recipes.data.pipeline import ONE_HOST
from keras_vit.recipes.recipe import Data, Run
from keras_vit.recipes.recipe_errors import RecipeError
from keras_vit.recipes.rendezvous import (
    ended_by_signals,
    listen,
    saying_who_is_missing,
    set_last_words,
    start_all,
    wait_for_workers,
)
from keras_vit.recipes.training.keras_internals import tensorflow_has_started

# Keras's names: of the first process's address, the number of processes, and the number of this one.
PROCESSES = ("KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID")
KINDS = ("tpu", "gpu", "cpu")  # the first that exists is used
JOIN_SECONDS = Run.join_seconds
TEXT_BYTES = 16384
HEARTBEAT_SECONDS = 20  # after which JAX ends the others of a process that is gone; its own value is 100


class JaxDevices:
    """All devices of one kind, of all processes of a run.


    Attributes:
        num_replicas_in_sync: Their number.
        process, processes: Number of this process, from 0, and number of processes.
    """

    def __init__(self, names: list[str]):
        import jax

        self.names = names
        self.num_replicas_in_sync = len(names)
        self.process, self.processes = jax.process_index(), jax.process_count()
        several = len(names) > 1
        # Batches are parts already: each process reads its own.
        parallel = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False) if several else None
        keras.distribution.set_distribution(parallel)

    def scope(self):
        """Nothing to enter: the distribution holds for the whole process."""
        return nullcontext()

    def gather(self, values: np.ndarray) -> np.ndarray:
        """The arrays of all processes, one a row; all of them must call this."""
        if self.processes == 1:
            return values[None]
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(values))


def choose_devices(name: str, join_seconds: int = JOIN_SECONDS) -> JaxDevices:
    """The devices of a name of `run.strategy`, see `choose_strategy`; creates their distribution for the process.

    Args:
        name: "auto" (the processes that Keras's environment variables name, and all TPUs, else all GPUs, else the first
            CPU), "tpu", "mirrored" (all GPUs of this machine, or all CPU devices if it has none), "multi-worker", or
            "one-device".
    """
    for kind in ("GPU", "TPU"):  # TensorFlow only reads data here
        tf.config.set_visible_devices([], kind)
    missing = [variable for variable in PROCESSES if variable not in os.environ]
    if missing and (name == "multi-worker" or len(missing) < len(PROCESSES)):
        raise ValueError(
            f"Several processes with Keras on JAX require {', '.join(PROCESSES)} in every process's environment. "
            f"Missing: {', '.join(missing)}."
        )
    if not missing:
        if name == "one-device" and (number := os.environ[PROCESSES[1]]) != "1":
            raise RecipeError(
                f"{PROCESSES[1]}={number} names several processes, and each would train a model of its own. For a "
                f"single one, unset {', '.join(PROCESSES)}.",
                {"run.strategy": name},
                {"run.strategy": "auto"},
            )
        _join(join_seconds)
    kinds = {"tpu": KINDS[:1], "mirrored": KINDS[1:]}.get(name, KINDS)
    device_names = next((names for kind in kinds if (names := _devices(kind))), None)
    if device_names is None:
        raise RecipeError(
            f"JAX finds no {kinds[0].upper()}, only {_devices(None)}.", {"run.strategy": name}, {"run.strategy": "auto"}
        )
    is_one = name == "one-device" or (name == "auto" and missing and device_names[0].startswith("cpu"))
    devices = JaxDevices(device_names[:1] if is_one else device_names)
    _chosen.append(devices)
    return devices


def whole_array(variable) -> np.ndarray:
    """All of a variable of Keras; if other processes hold parts of it, all of them must call this."""
    if keras.backend.backend() == "jax" and not variable.value.is_fully_replicated:
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(variable.value, tiled=True))
    return keras.ops.convert_to_numpy(variable)


@contextmanager
def on_this_process():
    """Variables that are created within are of this process alone: with JAX, no other one has to create them, too."""
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


_chosen: list[JaxDevices] = []


def chosen_devices() -> JaxDevices:
    """Those of the last `choose_devices` of this process, or the first device."""
    return _chosen[-1] if _chosen else choose_devices("one-device")


def _devices(kind) -> list[str]:
    try:
        return keras.distribution.list_devices(kind)
    except RuntimeError:  # JAX has no such platform
        return []


def _join(join_seconds):
    """As `keras.distribution.initialize`, which has none of the limits; recipes seed all random generators."""
    import jax

    if jax.distributed.is_initialized():  # a process can join once
        return
    addresses, count, index = (os.environ[variable] for variable in PROCESSES)
    address = addresses.split(",")[0]
    if index == "0":
        listen(address).close()  # an error names the port
    others = f"the others, which connect to {address}" if index == "0" else f"process 0 at {address}"
    waits = f"Process {index} of {count} is waiting for {others}."
    set_last_words(f"{waits} It has waited for {join_seconds} s. {start_all()}")
    with ended_by_signals(), saying_who_is_missing(waits):
        jax.distributed.initialize(
            address,
            int(count),
            int(index),
            initialization_timeout=join_seconds,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )


Strategy: TypeAlias = tf.distribute.Strategy | JaxDevices


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
    addresses, index = _check_workers(tf_config)
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


def _check_workers(tf_config) -> tuple[list[str], int]:
    """The addresses of all workers, the chief first, and the number of this one among them.

    Raises ValueError for an incomplete TF_CONFIG, with which TensorFlow would silently train on one worker.
    """
    try:
        config = json.loads(tf_config or "{}")
        cluster, task = config["cluster"], config["task"]
        own = cluster[task["type"]][int(task["index"])]
        addresses = [address for job in ("chief", "master", "worker") for address in cluster.get(job, ())]
        return addresses, addresses.index(own)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(
            "Several workers require the environment variable TF_CONFIG on every worker, such as "
            '\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}\', '
            f"with the index of that worker. Received: {tf_config!r}"
        ) from error


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


# Number of steps and collective operations that this process has begun or ended, and the time of the last one.
events = [0, time.monotonic()]


def count_event():
    """Tells the `Watch` of this process that the training goes on."""
    events[:] = [events[0] + 1, time.monotonic()]


class Workers:
    """The processes of a strategy: several under `MultiWorkerMirroredStrategy` and with JAX, else only this one.

    All workers must call `any` and `gather_text` at the same points: these are collective operations.

    Attributes:
        index, names: Number of this process, and the names of all for messages.
    """

    def __init__(self, strategy: Strategy):
        self.strategy = strategy
        self.index, self.names = 0, ["process 0"]
        if isinstance(strategy, JaxDevices):
            self.index, self.names = strategy.process, [f"process {i}" for i in range(strategy.processes)]
        elif isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            addresses, self.index = _check_workers(os.environ.get("TF_CONFIG"))
            self.names = [f"worker {i} at {address}" for i, address in enumerate(addresses)]
        self.several, self.chief = len(self.names) > 1, self.index == 0

    def any(self, value: bool) -> bool:
        """Whether the value is true on any worker."""
        return bool(self._gather(np.array(value, "int32")).any())

    def gather_text(self, text: str) -> list[str]:
        """The text of every worker."""
        encoded = np.frombuffer(text.encode(), "uint8").astype("int32")  # zeros are not part of UTF-8 texts
        longest = int(self._gather(np.array(len(encoded), "int32")).max())
        size = -(-longest // TEXT_BYTES) * TEXT_BYTES  # few sizes, since each is traced
        rows = self._gather(np.pad(encoded, (0, size - len(encoded))))
        return [bytes(row[row > 0].astype("uint8")).decode() for row in rows]

    def _gather(self, values: np.ndarray) -> np.ndarray:
        """The int32 array of each worker, one a row."""
        count_event()
        if isinstance(self.strategy, JaxDevices):
            return self.strategy.gather(values)
        if not self.several:
            return values[None]
        local = self.strategy.experimental_distribute_values_from_function(lambda _: tf.constant(values[None]))
        rows = self.strategy.gather(local, axis=0).numpy()
        return rows[:: len(rows) // len(self.names)]  # one of the replicas of each worker
