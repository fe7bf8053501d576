import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers import PatchDropout

# Each token's number is its index, so that the output shows which tokens are kept.
TOKENS = np.broadcast_to(np.arange(12.0, dtype="float32")[None, :, None], (500, 12, 4))


def kept(layer, tokens=TOKENS):
    output = np.asarray(layer(tokens, training=True))
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
    layer = PatchDropout(rate, prefix_tokens=1)
    assert layer.count_kept(num_patches) == number
    tokens = keras.KerasTensor((None, 1 + num_patches, 4))
    assert layer.compute_output_spec(tokens, training=True).shape == (None, 1 + number, 4)
    assert layer.compute_output_spec(tokens).shape == tokens.shape


def test_draws_differ_between_calls_and_repeat_with_the_seed():
    first, second = PatchDropout(0.5, seed=1), PatchDropout(0.5, seed=1)
    draws = [kept(first), kept(first)]
    assert not np.array_equal(*draws)
    np.testing.assert_array_equal(draws, [kept(second), kept(second)])


def test_identity_outside_training_and_at_rate_zero():
    np.testing.assert_array_equal(PatchDropout(0.5)(TOKENS), TOKENS)
    layer = PatchDropout(0.0)
    np.testing.assert_array_equal(layer(TOKENS, training=True), TOKENS)
    assert layer.seed_generator is None


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


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_rate_out_of_range(rate):
    with pytest.raises(ValueError, match=f"Received: {rate}"):
        PatchDropout(rate)
