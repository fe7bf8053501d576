"""Functions that XLA compiles within TensorFlow's graphs for CPUs.

Such a graph runs operation by operation. XLA makes a loop of GELU or of a normalization, and one of each gradient,
which reads and writes each tensor once or twice. Large matrix products and convolutions stay outside: XLA's are slower
on a CPU than TensorFlow's.
"""

from functools import cache

import keras
from keras import ops

from keras_vit.keras_internals import compiled_by_xla


def can_compile_island() -> bool:
    """Whether a graph for a CPU is being traced that is not itself compiled: not eagerly, not under a strategy."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    if tf.executing_eagerly() or compiled_by_xla() or tf.distribute.has_strategy():
        return False
    return all(device.device_type == "CPU" for device in tf.config.list_logical_devices())


@cache
def island(function):
    """`function` compiled by XLA, once for all layers of the same shapes; only where `can_compile_island`."""
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)


def sums_by_product(values):
    """The sums over all axes but the first and the last, (B, ..., C) -> (B, C), for an island.

    A product with ones: XLA for CPUs does not vectorize the sum of a product of two tensors.
    """
    batch = ops.shape(values)[0]
    values = ops.reshape(values, (batch, -1, values.shape[-1]))
    ones = ops.ones((batch, 1, ops.shape(values)[1]), values.dtype)  # of each example: ones for all are slower
    return ops.matmul(ones, values)[:, 0]
