"""The tf.distribute strategy of a run. The only file that knows about TPUs."""

import functools
import json
import os

import tensorflow as tf


def choose_strategy(name: str) -> tf.distribute.Strategy:
    """Returns the strategy that a recipe's field names; create model, optimizer and metrics in its `scope()`.

    Call it before anything else: several workers can join only before TensorFlow has computed something.

    Args:
        name: "auto": the TPU that TensorFlow sees or TPU_NAME names, else the workers that TF_CONFIG names, else all
            GPUs, else the processor; "tpu"; "mirrored" (all GPUs of this machine, without one all logical CPUs);
            "multi-worker"; or "one-device" (the first GPU, else the processor).

    Raises:
        ValueError: An unknown name, or the hardware that it needs is not there or does not answer.
    """
    if name == "auto":
        name = _found()
    if name == "tpu":
        return _tpu_strategy(_tpu_name())
    if name == "mirrored":
        return _mirrored_strategy()
    if name == "multi-worker":
        return _multi_worker_strategy(os.environ.get("TF_CONFIG"))
    if name == "one-device":
        return tf.distribute.get_strategy()
    raise ValueError(f"`strategy` must be one of auto, tpu, mirrored, multi-worker, one-device. Received: {name!r}")


def _found():
    if os.environ.get("TPU_NAME") or tf.config.list_physical_devices("TPU"):
        return "tpu"
    if os.environ.get("TF_CONFIG"):
        return "multi-worker"
    return "mirrored" if len(tf.config.list_logical_devices("GPU")) > 1 else "one-device"


def _tpu_name():
    """What TensorFlow's resolver takes: a TPU's name, "grpc://address:8470", or "local" for chips of this machine."""
    if name := os.environ.get("TPU_NAME"):
        return name
    if tf.config.list_physical_devices("TPU"):
        return "local"
    raise ValueError(
        "strategy='tpu', but TensorFlow sees no TPU. On a TPU VM install keras_vit[tpu] (tensorflow-tpu, not "
        "tensorflow) and ask `keras-vit doctor`; elsewhere use strategy='auto'. Devices seen: "
        f"{[device.name for device in tf.config.list_physical_devices()]}"
    )


@functools.cache  # a second initialization would erase what the models of the first keep on the TPU
def _tpu_strategy(name):
    try:
        return tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver.connect(name))
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ValueError(
            f"The TPU {name!r} does not answer. `keras-vit doctor` looks for the cause; where there is no TPU, unset "
            f"TPU_NAME. TensorFlow says: {reason}"
        ) from error


def _mirrored_strategy():
    gpus = tf.config.list_logical_devices("GPU")
    devices = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
    # NCCL and its fall-backs want GPUs.
    reduce = None if gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce)


@functools.cache  # a process can join once
def _multi_worker_strategy(tf_config):
    _check_workers(tf_config)
    try:
        return MultiWorkerStrategy()
    except RuntimeError as error:
        raise ValueError(
            "strategy='multi-worker' came too late: TensorFlow has already computed something in this process. Call "
            "choose_strategy, or start the recipe, before models, tensors and data sets are made."
        ) from error


class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """TensorFlow's, such that Keras 3 can `fit` (keras-team/keras issue 20585).

    Keras reduces a batch, a structure of values, to learn its shapes, for which the part of this worker does; and the
    figures of a step, scalars, along an axis that they do not have.
    """

    def reduce(self, reduce_op, value, axis):
        if tf.nest.is_nested(value):
            return tf.nest.map_structure(lambda part: self.experimental_local_results(part)[0], value)
        scalar = self.experimental_local_results(value)[0].shape.rank == 0
        return super().reduce(reduce_op, value, axis=None if scalar else axis)


def _check_workers(tf_config):
    """TensorFlow itself would train alone, without a word, where TF_CONFIG lacks a part."""
    try:
        config = json.loads(tf_config or "{}")
        cluster, task = config["cluster"], config["task"]
        cluster[task["type"]][int(task["index"])]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(
            "strategy='multi-worker' needs the environment variable TF_CONFIG on every worker, such as "
            '\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}\', '
            f"the index being the worker's own. Received: {tf_config!r}"
        ) from error
