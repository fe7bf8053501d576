"""GELU with a written-out gradient equals the one that TensorFlow derives; for JAX see test_jax_backend.py."""

import numpy as np
import pytest
import tensorflow as tf
from gradients import output_and_gradients

from keras_vit.layers import Mlp
from keras_vit.layers.xla.gelu import gelu_for_training

X = 3 * np.random.default_rng(0).standard_normal((2, 5, 12))


def derived_gelu(x):
    return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_equals_the_derived_gradient(compiled):
    step = tf.function(output_and_gradients, autograph=False) if compiled else output_and_gradients
    x = tf.constant(X)
    output, (gradient,) = step(lambda x: gelu_for_training(x), x)
    expected, (derived,) = output_and_gradients(derived_gelu, x)
    np.testing.assert_allclose(output, expected, atol=1e-13)
    np.testing.assert_allclose(gradient, derived, atol=1e-13)


@pytest.mark.parametrize("gelu", ["tanh", "erf"])
def test_training_equals_inference(gelu):
    layer, x = Mlp(8, gelu=gelu), X.astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).standard_normal(weight.shape))
    np.testing.assert_allclose(layer(x, training=True), layer(x, training=False), rtol=1e-6, atol=3e-6)


def test_far_from_zero():
    x = tf.constant([-1e4, -200, -20, -5, -0.0, 0.0, 5, 20, 200])
    output, (gradient,) = output_and_gradients(gelu_for_training, x)
    np.testing.assert_allclose(output, [0, 0, 0, derived_gelu(-5.0), 0, 0, 5, 20, 200], atol=1e-6)
    assert np.isfinite(gradient).all()


def test_bfloat16_equals_rounded_float32():
    x = tf.cast(np.linspace(-6, 6, 500), tf.bfloat16)
    output, (gradient,) = output_and_gradients(gelu_for_training, x)
    assert output.dtype == gradient.dtype == tf.bfloat16
    expected = derived_gelu(tf.cast(x, tf.float32))
    np.testing.assert_allclose(tf.cast(output, tf.float32), expected, rtol=2**-8, atol=1e-6)
