import numpy as np
import pytest

from keras_vit.layers import StochasticDepth

BRANCH = np.ones((2000, 3, 4), "float32")


def test_drops_examples_at_the_rate_and_scales_the_others():
    output = np.asarray(StochasticDepth(0.25, seed=0)(BRANCH, training=True))
    kept = output[:, 0, 0] != 0
    assert 0.71 < kept.mean() < 0.79
    np.testing.assert_allclose(output[kept], 1 / 0.75)
    np.testing.assert_array_equal(output[~kept], 0)


def test_draws_differ_between_calls_and_repeat_with_the_seed():
    first, second = StochasticDepth(0.5, seed=1), StochasticDepth(0.5, seed=1)
    a, b = first(BRANCH, training=True), first(BRANCH, training=True)
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(a, second(BRANCH, training=True))


def test_identity_outside_training_and_at_rate_zero():
    np.testing.assert_array_equal(StochasticDepth(0.5)(BRANCH), BRANCH)
    np.testing.assert_array_equal(StochasticDepth(0.0)(BRANCH, training=True), BRANCH)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_rate_out_of_range(rate):
    with pytest.raises(ValueError, match=f"Received: {rate}"):
        StochasticDepth(rate)
