"""Dropout that draws its mask twice instead of storing it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers.xla.dropout import Dropout
from keras_vit.layers.xla.recompute import next_seed, recompute

X = tf.constant(np.random.default_rng(0).uniform(1, 2, (4, 7, 16)), "float32")


def step(layer):
    """The layer's output and the gradient of its sum."""
    with tf.GradientTape() as tape:
        tape.watch(X)
        output = layer(X, training=True)
        loss = tf.reduce_sum(output)
    return output, tape.gradient(loss, X)


def draws(layer):
    graph = tf.function(lambda: step(layer), jit_compile=True).get_concrete_function().graph
    return sum(operation.type == "StatelessRandomUniformV2" for operation in graph.get_operations())


@pytest.mark.parametrize("compiled", [False, True])
def test_gradient_has_the_mask_of_the_output(compiled):
    layer = Dropout(0.3, seed=5)
    compute = tf.function(lambda: step(layer), jit_compile=compiled)
    masks = []
    for _ in range(2):
        output, slope = compute()
        np.testing.assert_allclose(output, X * slope, rtol=1e-6)
        masks.append(slope.numpy() > 0)
        assert 0.5 < masks[-1].mean() < 0.9
        np.testing.assert_allclose(slope.numpy()[masks[-1]], 1 / 0.7, rtol=1e-6)
    assert (masks[0] != masks[1]).any()


def test_mask_is_drawn_twice_under_xla():
    assert draws(Dropout(0.3)) == 2
    assert draws(keras.layers.Dropout(0.3)) == 1


def test_without_xla_it_equals_dropout_of_keras():
    ours, theirs = Dropout(0.3, seed=5), keras.layers.Dropout(0.3, seed=5)
    for one, other in zip(step(ours), step(theirs)):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(ours(X), X)


@pytest.mark.parametrize("seed", [0, 5, 2**31 - 3, 2**31 - 2, 2**31, 2**32 - 1])
def test_mask_under_xla_is_that_of_keras_without_64_bit_remainder(seed):
    ours, theirs = Dropout(0.3, seed=seed), keras.layers.Dropout(0.3, seed=seed)
    compiled = [tf.function(lambda layer=layer: step(layer), jit_compile=True) for layer in (ours, theirs)]
    for _ in range(2):
        for one, other in zip(*(each() for each in compiled)):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    ops = {operation.type for operation in compiled[0].get_concrete_function().graph.get_operations()}
    assert "FloorMod" not in ops


def test_seeds_without_xla_are_those_of_keras():
    ours, theirs = (keras.random.SeedGenerator(2**31) for _ in range(2))
    np.testing.assert_array_equal(next_seed(ours), theirs.next())


KERAS_3_13 = keras.__version__.startswith("3.13.")


@pytest.mark.parametrize(
    "rate", [0.0, pytest.param(1.0, marks=pytest.mark.skipif(KERAS_3_13, reason="Keras 3.13 has no dropout of 1"))]
)
def test_rates_that_draw_nothing(rate):
    layer = Dropout(rate)
    output, slope = tf.function(lambda: step(layer), jit_compile=True)()
    np.testing.assert_array_equal(output, X * (1 - rate))
    np.testing.assert_array_equal(slope, np.full(X.shape, 1 - rate))


@pytest.mark.slow
def test_dropout_inside_recompute():
    layer = Dropout(0.3, seed=5)

    def call(x, training):
        return recompute(lambda x: layer(x, training=True), x, [layer])

    output, slope = tf.function(lambda: step(call), jit_compile=True)()
    np.testing.assert_allclose(output, X * slope, rtol=1e-6)
    assert 0.5 < (slope.numpy() > 0).mean() < 0.9


def test_config_round_trip():
    layer = Dropout.from_config(Dropout(0.3, seed=5, name="drop").get_config())
    assert (layer.rate, layer.seed, layer.name) == (0.3, 5, "drop")
