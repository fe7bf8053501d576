import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.preflight.lowering import layer_path, lower_to_hlo
from keras_vit.recipes.preflight.step_functions import inference_step

IMAGES = tf.TensorSpec((4, 8, 8, 3), tf.float32)


class Unsupported(keras.layers.Layer):
    """A layer with an operation that a TPU does not support."""

    def __init__(self, what, **kwargs):
        super().__init__(**kwargs)
        self.what = what

    def call(self, x):
        return self.what(x)


def host(x):
    return tf.ensure_shape(tf.numpy_function(np.sin, [x], tf.float32), x.shape)


def dynamic(x):
    return tf.reduce_sum(tf.boolean_mask(x, x > 0)) + x


def double(x):
    return tf.cast(tf.cast(x, tf.float64) * np.pi, tf.float32)


def strings(x):
    return x + tf.strings.to_number(tf.strings.as_string(x))


def looped(x):
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, host(y)), (0, x))[1]


@pytest.mark.parametrize(
    "what,message",
    [
        (host, r"EagerPyFunc|PyFunc.* in .*unsupported calls back to the host in every step"),
        (dynamic, r"Where in .*unsupported.* has a data-dependent output shape"),
        (double, r"in .*unsupported computes in float64, which a TPU does not support"),
        (strings, r"AsString in .*unsupported outputs strings"),
        (looped, r"PyFunc.* calls back to the host"),
    ],
)
def test_unsupported_operations_are_reported_with_their_layer(what, message):
    model = keras.Sequential([Unsupported(what, name="unsupported")], name="toy")
    program = lower_to_hlo(inference_step(model), (IMAGES,))
    assert program.hlo == b""
    assert any(re.search(message, problem) for problem in program.problems), program.problems


def test_supported_step_is_lowered():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)], name="toy")
    program = lower_to_hlo(inference_step(model), (IMAGES,))
    assert program.problems == () and len(program.hlo) > 100


def test_batch_size_must_be_static():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match=r"static shapes. Received: \(None, 8, 8, 3\)"):
        lower_to_hlo(inference_step(model), (tf.TensorSpec((None, 8, 8, 3)),))


def test_layer_path():
    assert layer_path("gradient_tape/vit_1/encoder_1/block_3_1/mlp_1/Add") == "vit/encoder/block_3/mlp"
    assert layer_path("Add") == "the step itself"
