"""The layers that drop patches and branches."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers import PatchDropout, StochasticDepth

# Each token's number is its index, so that the output shows which tokens are kept.
TOKENS = np.broadcast_to(np.arange(12.0, dtype="float32")[None, :, None], (500, 12, 4))
LAYERS = pytest.mark.parametrize("kind", [PatchDropout, StochasticDepth])


def kept(layer):
    output = np.asarray(layer(TOKENS, training=True))
    assert (output == output[..., :1]).all()
    return output[..., 0].astype(int)


def test_keeps_the_prefix_and_a_fixed_number_of_different_patches():
    found = kept(PatchDropout(0.5, prefix_tokens=2, seed=0))
    assert found.shape == (500, 7)
    np.testing.assert_array_equal(found[:, :2], np.broadcast_to([0, 1], (500, 2)))
    patches = np.sort(found[:, 2:], axis=1)
    assert (np.diff(patches) > 0).all() and patches.min() == 2 and patches.max() == 11
    # Each of the ten patches is kept in half of the images, and images differ.
    counts = np.bincount(patches.ravel(), minlength=12)[2:]
    assert counts.min() > 200 and counts.max() < 300
    assert len({tuple(row) for row in patches}) > 100


@pytest.mark.parametrize("rate,num_patches,number", [(0.5, 196, 98), (0.75, 10, 2), (0.3, 10, 7), (0.99, 10, 1)])
def test_number_of_kept_patches(rate, num_patches, number):
    layer, tokens = PatchDropout(rate, prefix_tokens=1), keras.KerasTensor((None, 1 + num_patches, 4))
    assert layer.count_kept(num_patches) == number
    assert layer.compute_output_spec(tokens, training=True).shape == (None, 1 + number, 4)
    assert layer.compute_output_spec(tokens).shape == tokens.shape


def test_stochastic_depth_drops_examples_at_the_rate_and_scales_the_others():
    output = np.asarray(StochasticDepth(0.25, seed=0)(np.ones((2000, 3, 4), "float32"), training=True))
    dropped = output[:, 0, 0] == 0
    assert 0.71 < 1 - dropped.mean() < 0.79
    np.testing.assert_allclose(output[~dropped], 1 / 0.75)
    np.testing.assert_array_equal(output[dropped], 0)


@LAYERS
def test_draws_differ_between_calls_and_repeat_with_the_seed(kind):
    first, second = kind(0.5, seed=1), kind(0.5, seed=1)
    draws = [np.asarray(first(TOKENS, training=True)) for _ in range(2)]
    assert not np.array_equal(*draws)
    np.testing.assert_array_equal(draws, [second(TOKENS, training=True) for _ in range(2)])


@LAYERS
def test_identity_outside_training_and_at_rate_zero(kind):
    np.testing.assert_array_equal(kind(0.5)(TOKENS), TOKENS)
    np.testing.assert_array_equal(kind(0.0)(TOKENS, training=True), TOKENS)


def test_gradients_reach_the_kept_tokens_alone():
    tokens, layer = tf.constant(TOKENS[:3]), PatchDropout(0.5, prefix_tokens=1, seed=0)
    with tf.GradientTape() as tape:
        tape.watch(tokens)
        output = layer(tokens, training=True)
        loss = tf.reduce_sum(output * output) / 2
    gradient = tape.gradient(loss, tokens).numpy()
    for image, numbers in zip(gradient, output[..., 0].numpy().astype(int)):
        expected = np.where(np.isin(np.arange(12), numbers), np.arange(12), 0)
        np.testing.assert_array_equal(image, np.repeat(expected[:, None], 4, axis=1))


@LAYERS
@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_rate_out_of_range(kind, rate):
    with pytest.raises(ValueError, match=f"Received: {rate}"):
        kind(rate)
