"""Group normalization with an explicit gradient equals Keras's layer with the gradients that TensorFlow derives."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gradients import output_and_gradients

from keras_vit.layers.resnet.group_norm import GroupNorm

X = 3 * np.random.default_rng(0).standard_normal((2, 5, 3, 8)) + 2


def norms(dtype):
    """Ours and Keras's, with the same random weights."""
    pair = GroupNorm(4, 1e-5, dtype=dtype), keras.layers.GroupNormalization(4, epsilon=1e-5, dtype=dtype)
    for layer in pair:
        layer.build((None, None, None, 8))
        for index, weight in enumerate(layer.weights):
            weight.assign(np.random.default_rng(index).standard_normal(weight.shape))
    return pair


def trained(layer, x, step=output_and_gradients, **options):
    return step(lambda x, *_: layer(x, **options), x, *(weight.value for weight in layer.weights))


@pytest.mark.parametrize("sizes", ["eager", "static", "dynamic"])
def test_equals_the_derived_gradients(sizes):
    ours, keras_norm = norms("float64")
    expected, derived = trained(keras_norm, tf.constant(X))
    shape = X.shape if sizes == "static" else (None, None, None, 8)

    def step(x):
        return trained(ours, x, training=True)

    if sizes != "eager":
        step = tf.function(step, input_signature=[tf.TensorSpec(shape, tf.float64)], autograph=False)
    output, explicit = step(tf.constant(X))
    np.testing.assert_allclose(output, expected, atol=1e-12)
    for mine, theirs in zip(explicit, derived, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)


def test_inference_is_that_of_keras():
    ours, keras_norm = norms("float32")
    np.testing.assert_array_equal(ours(X.astype("float32")), keras_norm(X.astype("float32")))


@pytest.mark.parametrize("options", [{"scale": False}, {"center": False}, {"axis": 1}], ids=str)
def test_other_options_of_keras(options):
    x = X[:, :4].astype("float32")  # four groups of either axis
    layer = GroupNorm(4, 1e-5, **options)
    np.testing.assert_array_equal(layer(x, training=True), layer(x))


def test_dtypes_in_mixed_precision():
    ours, keras_norm = norms("mixed_bfloat16")
    x = tf.cast(X, tf.bfloat16)
    output, gradients = trained(ours, x, training=True)
    assert [tensor.dtype for tensor in (output, *gradients)] == [tf.bfloat16, tf.bfloat16, tf.float32, tf.float32]
    np.testing.assert_allclose(tf.cast(output, tf.float32), tf.cast(keras_norm(x), tf.float32), atol=0.02)
