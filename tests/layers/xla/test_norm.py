"""Layer normalization with written-out gradients equals those that TensorFlow derives."""

import numpy as np
import pytest
import tensorflow as tf
from gradients import output_and_gradients

from keras_vit.layers import LayerNorm

X = 3 * np.random.default_rng(0).standard_normal((2, 5, 12))


def random_norm(**options):
    layer = LayerNorm(**options)
    layer.build(X.shape)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).standard_normal(weight.shape))
    return layer


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_equals_the_derived_gradients(compiled):
    layer = random_norm(dtype="float64")
    step = tf.function(output_and_gradients, autograph=False) if compiled else output_and_gradients
    inputs = [tf.constant(X), *(weight.value for weight in layer.weights)]
    (output, written), (expected, derived) = (
        step(lambda x, *_, training=training: layer(x, training=training), *inputs) for training in (True, False)
    )
    np.testing.assert_allclose(output, expected, atol=1e-12)
    for ours, theirs in zip(written, derived, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_training_equals_inference():
    layer, x = random_norm(), X.astype("float32")
    np.testing.assert_allclose(layer(x, training=True), layer(x, training=False), rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_training_equals_inference_in_half_precision(dtype):
    """Rows whose mean is far above their deviation: a float16 resolves what a mean of squares in float32 does not."""
    layer = random_norm(dtype=f"mixed_{dtype}")
    x = tf.constant(100 + 0.0625 * np.sign(X), dtype)
    trained, expected = (tf.cast(layer(x, training=training), "float32") for training in (True, False))
    np.testing.assert_allclose(trained, expected, rtol=1e-2, atol=5e-2)


def test_dtypes_in_mixed_precision():
    layer = random_norm(dtype="mixed_bfloat16")
    inputs = [tf.cast(X, tf.bfloat16), *(weight.value for weight in layer.weights)]
    output, gradients = output_and_gradients(lambda x, *_: layer(x, training=True), *inputs)
    assert [tensor.dtype for tensor in (output, *gradients)] == [tf.bfloat16, tf.bfloat16, tf.float32, tf.float32]
