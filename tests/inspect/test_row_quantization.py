import numpy as np
import pytest

from keras_vit.inspect import quantize_rows


def test_error_is_at_most_half_a_step():
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.full(50, 0.2), (3, 4)).astype("float32")  # rows that sum to 1, some of them spiky
    levels, steps = quantize_rows(weights)
    assert (levels.dtype, steps.dtype, levels.shape, steps.shape) == ("uint8", "float32", (3, 4, 50), (3, 4))
    assert (levels.max(axis=-1) == 255).all()
    lost = np.abs(levels * steps[..., None] - weights)
    assert (lost <= 0.5001 * steps[..., None]).all() and lost.max() > 0


def test_zero_rows_stay_zero():
    levels, steps = quantize_rows(np.array([[0, 0], [0, 1e-40]]))
    assert levels[0].tolist() == [0, 0] and steps[0] == 0 and (levels * steps[:, None]).max() < 1e-39


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_invalid_weights_raise(wrong):
    with pytest.raises(ValueError, match="Expected finite, nonnegative weights"):
        quantize_rows([[0.5, wrong]])
