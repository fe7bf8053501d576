"""Dropout that draws its mask twice instead of storing it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers.xla.recompute import Dropout, next_seed, recompute

X = tf.constant(np.random.default_rng(0).uniform(1, 2, (4, 7, 16)), "float32")


def step(layer):
    """The layer's output and the gradient of its sum."""
    with tf.GradientTape() as tape:
        tape.watch(X)
        output = layer(X, training=True)
        loss = tf.reduce_sum(output)
    return output, tape.gradient(loss, X)


def compiled(layer):
    return tf.function(lambda: step(layer), jit_compile=True)


def operations(layer):
    return [operation.type for operation in compiled(layer).get_concrete_function().graph.get_operations()]


def recomputed(rate, seed):
    layer = Dropout(rate, seed=seed)
    return lambda x, training: recompute(lambda x: layer(x, training=True), x, [layer])


@pytest.mark.parametrize("kind", [Dropout, recomputed])
def test_gradient_has_the_mask_of_the_output(kind):
    compute, masks = compiled(kind(0.3, seed=5)), []
    for _ in range(2):
        output, slope = compute()
        np.testing.assert_allclose(output, X * slope, rtol=1e-6)
        masks.append(slope.numpy() > 0)
        assert 0.5 < masks[-1].mean() < 0.9
        np.testing.assert_allclose(slope.numpy()[masks[-1]], 1 / 0.7, rtol=1e-6)
    assert (masks[0] != masks[1]).any()


def test_mask_is_drawn_twice_under_xla():
    draws = [operations(kind(0.3)).count("StatelessRandomUniformV2") for kind in (Dropout, keras.layers.Dropout)]
    assert draws == [2, 1]


def test_without_xla_it_equals_dropout_of_keras():
    ours, theirs = Dropout(0.3, seed=5), keras.layers.Dropout(0.3, seed=5)
    for _ in range(2):
        for one, other in zip(step(ours), step(theirs)):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(ours(X), X)
    ours, theirs = (keras.random.SeedGenerator(2**31) for _ in range(2))
    np.testing.assert_array_equal(next_seed(ours), theirs.next())


@pytest.mark.parametrize("seed", [0, 2**31 - 3, 2**31 - 2, 2**31, 2**32 - 1])
def test_mask_under_xla_is_that_of_keras_without_64_bit_remainder(seed):
    ours, theirs = Dropout(0.3, seed=seed), keras.layers.Dropout(0.3, seed=seed)
    steps = compiled(ours), compiled(theirs)
    for _ in range(2):
        for one, other in zip(*(each() for each in steps)):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    assert "FloorMod" not in operations(ours)


def test_rate_zero_draws_nothing():
    output, slope = compiled(Dropout(0.0))()
    np.testing.assert_array_equal(output, X)
    np.testing.assert_array_equal(slope, np.ones(X.shape))
