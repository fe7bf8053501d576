"""The devices of a run with Keras on JAX, in the place of a tf.distribute strategy: data parallelism over all of them.

Weights are copies on every device, a batch is split among them, and one program computes the step: its sums over the
batch, and so the gradients, are over all devices (`keras.distribution.DataParallel`).
"""

import functools
import os
from contextlib import contextmanager, nullcontext

import keras
import numpy as np
import tensorflow as tf

from keras_vit.recipes.recipe_errors import RecipeError

# Keras's names: of the first process's address, the number of processes, and the number of this one.
PROCESSES = ("KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID")
KINDS = ("tpu", "gpu", "cpu")  # the first that exists is used


class JaxDevices:
    """All devices of one kind, of all processes of a run.

    Args:
        names: As `keras.distribution.list_devices` returns them: "cpu:0", "tpu:3".

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

    def gather(self, value: int) -> list[int]:
        """The value of every process; all of them must call this."""
        if self.processes == 1:
            return [value]
        from jax.experimental import multihost_utils

        return np.ravel(multihost_utils.process_allgather(np.array(value))).tolist()


def choose_devices(name: str) -> JaxDevices:
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
        _join()
    kinds = {"tpu": KINDS[:1], "mirrored": KINDS[1:]}.get(name, KINDS)
    found = next((names for kind in kinds if (names := _devices(kind))), None)
    if found is None:
        raise RecipeError(
            f"JAX finds no {kinds[0].upper()}, only {_devices(None)}.", {"run.strategy": name}, {"run.strategy": "auto"}
        )
    is_one = name == "one-device" or (name == "auto" and missing and found[0].startswith("cpu"))
    devices = JaxDevices(found[:1] if is_one else found)
    _chosen.append(devices)
    return devices


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


@functools.cache  # a process can join once
def _join():
    keras.distribution.initialize()
