"""The tf.distribute strategy of a run. The only file that knows about TPUs."""

import os

import tensorflow as tf


def choose_strategy(name: str) -> tf.distribute.Strategy:
    """Returns the strategy that a recipe's field names; create model, optimizer and metrics in its `scope()`.

    Args:
        name: "auto", "tpu", "mirrored" (all GPUs, without one all logical CPUs), "multi-worker" (TF_CONFIG names the
            workers) or "one-device".

    Raises:
        ValueError: An unknown name, or the hardware that it needs is not there.
    """
    if name == "auto":
        name = "tpu" if _sees_tpu() else "mirrored" if len(tf.config.list_logical_devices("GPU")) > 1 else "one-device"
    if name == "tpu":
        return _tpu_strategy()
    if name == "mirrored":
        return _mirrored_strategy()
    if name == "multi-worker":
        if not os.environ.get("TF_CONFIG"):
            raise ValueError(
                "strategy='multi-worker' needs the environment variable TF_CONFIG on every worker; see "
                "https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable"
            )
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "one-device":
        return tf.distribute.get_strategy()
    raise ValueError(f"`strategy` must be one of auto, tpu, mirrored, multi-worker, one-device. Received: {name!r}")


def _sees_tpu() -> bool:
    return bool(os.environ.get("TPU_NAME") or tf.config.list_physical_devices("TPU"))


def _tpu_strategy():
    if not _sees_tpu():
        raise ValueError(
            "strategy='tpu', but TensorFlow sees no TPU. On a TPU VM install keras_vit[tpu] (tensorflow-tpu, not "
            "tensorflow) and set TPU_NAME=local; elsewhere use strategy='auto'. Devices seen: "
            f"{[device.name for device in tf.config.list_physical_devices()]}"
        )
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=os.environ.get("TPU_NAME", "local"))
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


def _mirrored_strategy():
    gpus = tf.config.list_logical_devices("GPU")
    devices = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
    # NCCL and its fall-backs want GPUs.
    reduce = None if gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce)
