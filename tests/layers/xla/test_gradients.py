"""Gradients that are written out, against those that TensorFlow derives; on JAX see test_jax_backend.py."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers import LayerNorm, Mlp
from keras_vit.layers.xla.gelu import gelu_for_training

X = 3 * np.random.default_rng(0).standard_normal((2, 5, 12))


def filled(layer):
    layer.build(X.shape)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).standard_normal(weight.shape))
    return layer


def output_and_gradients(function, *inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(*inputs)
        # Another upstream gradient for every element.
        loss = tf.reduce_sum(tf.sin(tf.cast(output, tf.float64)))
    return output, tape.gradient(loss, inputs)


def derived_gelu(x):
    return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_gelu_has_the_derived_gradient(compiled):
    step = tf.function(output_and_gradients, autograph=False) if compiled else output_and_gradients
    x = tf.constant(X)
    output, (gradient,) = step(lambda x: gelu_for_training(x), x)
    expected, (derived,) = output_and_gradients(derived_gelu, x)
    np.testing.assert_allclose(output, expected, atol=1e-13)
    np.testing.assert_allclose(gradient, derived, atol=1e-13)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_norm_has_the_derived_gradients(compiled):
    layer = filled(LayerNorm(dtype="float64"))
    step = tf.function(output_and_gradients, autograph=False) if compiled else output_and_gradients
    inputs = [tf.constant(X), *(weight.value for weight in layer.weights)]
    (output, written), (expected, derived) = (
        step(lambda x, *_, training=training: layer(x, training=training), *inputs) for training in (True, False)
    )
    np.testing.assert_allclose(output, expected, atol=1e-12)
    for ours, theirs in zip(written, derived, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("layer", [LayerNorm(), Mlp(8), Mlp(8, gelu="erf")], ids=["norm", "tanh", "erf"])
def test_training_and_inference_agree(layer):
    filled(layer)
    x = X.astype("float32")
    np.testing.assert_allclose(layer(x, training=True), layer(x, training=False), rtol=1e-6, atol=3e-6)


def test_gelu_far_from_zero():
    x = tf.constant([-1e4, -200, -20, -5, -0.0, 0.0, 5, 20, 200])
    output, (gradient,) = output_and_gradients(gelu_for_training, x)
    np.testing.assert_allclose(output, [0, 0, 0, derived_gelu(-5.0), 0, 0, 5, 20, 200], atol=1e-6)
    assert np.isfinite(gradient).all()


def test_gelu_in_bfloat16_is_the_rounded_float32():
    x = tf.cast(np.linspace(-6, 6, 500), tf.bfloat16)
    output, (gradient,) = output_and_gradients(gelu_for_training, x)
    assert output.dtype == gradient.dtype == tf.bfloat16
    expected = derived_gelu(tf.cast(x, tf.float32))
    np.testing.assert_allclose(tf.cast(output, tf.float32), expected, rtol=2**-8, atol=1e-6)


def test_norm_in_mixed_precision_keeps_the_types():
    layer = filled(LayerNorm(dtype="mixed_bfloat16"))
    inputs = [tf.cast(X, tf.bfloat16), *(weight.value for weight in layer.weights)]
    output, gradients = output_and_gradients(lambda x, *_: layer(x, training=True), *inputs)
    assert [tensor.dtype for tensor in (output, *gradients)] == [tf.bfloat16, tf.bfloat16, tf.float32, tf.float32]
