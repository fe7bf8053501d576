"""GELU with a written-out gradient equals the one that TensorFlow derives; for JAX see test_jax_backend.py."""

import numpy as np
import pytest
import tensorflow as tf
from gradients import output_and_gradients

from keras_vit.layers import Mlp
from keras_vit.layers.xla.gelu import gelu_for_training

X = 3 * np.random.default_rng(0).standard_normal((2, 5, 12))
DERIVED = {
    "tanh": lambda x: 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "erf": lambda x: 0.5 * x * (1 + tf.math.erf(x / np.sqrt(2))),
    "quick": lambda x: x * tf.sigmoid(1.702 * x),
}
COMPILATIONS = {
    "eager": lambda step: step,
    "graph": lambda step: tf.function(step, autograph=False),
    "XLA": lambda step: tf.function(step, autograph=False, jit_compile=True),
}


@pytest.mark.parametrize("compilation", COMPILATIONS)
@pytest.mark.parametrize("form", DERIVED)
def test_equals_the_derived_gradient(form, compilation):
    step = COMPILATIONS[compilation](output_and_gradients)
    x = tf.constant(X)
    output, (gradient,) = step(lambda x: gelu_for_training(x, form), x)
    expected, (derived,) = output_and_gradients(DERIVED[form], x)
    np.testing.assert_allclose(output, expected, atol=1e-13)
    np.testing.assert_allclose(gradient, derived, atol=1e-13)


@pytest.mark.parametrize("gelu", DERIVED)
def test_training_equals_inference(gelu):
    layer, x = Mlp(8, gelu=gelu), X.astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).standard_normal(weight.shape))
    np.testing.assert_allclose(layer(x, training=True), layer(x, training=False), rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize("form", DERIVED)
def test_far_from_zero(form):
    x = tf.constant([-1e4, -200, -20, -0.0, 0.0, 20, 200])
    output, (gradient,) = output_and_gradients(lambda x: gelu_for_training(x, form), x)
    np.testing.assert_allclose(output, [0, 0, 0, 0, 0, 20, 200], atol=1e-6)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("form", DERIVED)
def test_bfloat16_equals_rounded_float32(form):
    x = tf.cast(np.linspace(-6, 6, 500), tf.bfloat16)
    output, (gradient,) = output_and_gradients(lambda x: gelu_for_training(x, form), x)
    assert output.dtype == gradient.dtype == tf.bfloat16
    expected = DERIVED[form](tf.cast(x, tf.float32))
    np.testing.assert_allclose(tf.cast(output, tf.float32), expected, rtol=2**-8, atol=1e-6)
