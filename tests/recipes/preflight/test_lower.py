import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.preflight.lower import layer_path, lower
from keras_vit.recipes.preflight.steps import inference_step

IMAGES = tf.TensorSpec((4, 8, 8, 3), tf.float32)


class Spoiled(keras.layers.Layer):
    """A layer that does something a TPU cannot."""

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
        (host, r"EagerPyFunc|PyFunc.* in .*spoiled calls back to the host in every step"),
        (dynamic, r"Where in .*spoiled.* gives a tensor whose shape depends on values"),
        (double, r"in .*spoiled computes in float64, which TPUs do not have"),
        (strings, r"AsString in .*spoiled makes strings"),
        (looped, r"PyFunc.* calls back to the host"),
    ],
)
def test_what_a_tpu_cannot_do_is_said_with_its_layer(what, message):
    model = keras.Sequential([Spoiled(what, name="spoiled")], name="toy")
    program = lower(inference_step(model), (IMAGES,))
    assert program.hlo == b""
    assert any(re.search(message, problem) for problem in program.problems), program.problems


def test_a_sound_step_becomes_a_program():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)], name="toy")
    program = lower(inference_step(model), (IMAGES,))
    assert program.problems == () and len(program.hlo) > 100


def test_a_batch_needs_a_size():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match=r"one shape. Received a batch of \(None, 8, 8, 3\)"):
        lower(inference_step(model), (tf.TensorSpec((None, 8, 8, 3)),))


def test_paths_are_those_of_layers():
    assert layer_path("gradient_tape/vit_1/encoder_1/block_3_1/mlp_1/Add") == "vit/encoder/block_3/mlp"
    assert layer_path("Add") == "the step itself"
