"""The devices of Keras on JAX: data parallelism over all of them, of all processes of a run.

Weights are copies on every device, a batch is split among them, and one program computes the step: its sums over the
batch, and so the gradients, are over all devices (`keras.distribution.DataParallel`).
"""

import atexit
import os
import sys
from contextlib import contextmanager, nullcontext
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_vit.recipes.processes.rendezvous import (
    START_ALL,
    ended_by_signals,
    listen,
    saying_who_is_missing,
    set_last_words,
)
from keras_vit.recipes.recipe import Run
from keras_vit.recipes.recipe.errors import RecipeError

# Keras's names: of the first process's address, the number of processes, and the number of this one.
PROCESSES = ("KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID")
KINDS = ("tpu", "gpu", "cpu")  # the first that exists is used
JOIN_SECONDS = Run.join_seconds
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


Strategy: TypeAlias = tf.distribute.Strategy | JaxDevices


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
    set_last_words(f"{waits} It has waited for {join_seconds} s. {START_ALL}")
    with ended_by_signals(), saying_who_is_missing(waits):
        jax.distributed.initialize(
            address,
            int(count),
            int(index),
            initialization_timeout=join_seconds,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )


def leave_without_barrier():
    """JAX would wait at the end of this process for all others, of which one has failed, for up to five minutes."""
    if keras.backend.backend() == "jax":
        atexit.register(_exit_at_once)  # before JAX's own function, which was registered earlier


def _exit_at_once():
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
