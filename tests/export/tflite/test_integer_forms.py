"""Softmax and roots from operations that XNNPACK runs in 8 bits equal the functions."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export.tflite.integer_forms import piecewise, softmax_times


@pytest.mark.parametrize("low,high,error", [(1, 197, 0.01), (0.05, 3, 0.006), (2, 4, 0.0005)])
def test_piecewise_equals_an_inverse_root(low, high, error):
    x = np.geomspace(low, high, 1000).astype("float32").reshape(1, 500, 1, 2) / [1, 2]
    weights = [1.0, 2.0]
    found = piecewise(tf.constant(x, "float32"), weights, lambda x: x**-0.5, low, 2 * high)
    expected = np.clip(x @ weights, low, 2 * high) ** -0.5
    assert np.abs(found[..., 0] / expected - 1).max() < error


def test_piecewise_is_constant_beyond_its_ends():
    found = piecewise(tf.constant([0.0, 1, 9, 50]).numpy().reshape(1, 4, 1, 1), [1.0], lambda x: 1 / x, 1, 9)
    below, low, high, above = np.ravel(found)
    assert below == low == pytest.approx(1, rel=0.01) and above == high == pytest.approx(1 / 9, rel=0.01)


@pytest.mark.parametrize("length,spread", [(1, 1), (2, 1), (197, 0.01), (197, 1), (197, 8)])
def test_softmax_times_values(length, spread):
    random = np.random.default_rng(0)
    logits = (spread * random.standard_normal((1, 3, 7, length))).astype("float32")
    value = random.standard_normal((1, 3, length, 4)).astype("float32")
    expected = tf.matmul(tf.nn.softmax(logits), value).numpy()
    np.testing.assert_allclose(softmax_times(tf.constant(logits), value), expected, atol=0.01 * np.abs(expected).max())
