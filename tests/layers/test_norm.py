import numpy as np
import pytest

from keras_vit.layers import LayerNorm

X = np.random.default_rng(0).standard_normal((2, 3, 16)).astype("float32")


def test_default_epsilon():
    x = np.full((1, 4), 1e-3, "float32") * np.array([1, -1, 1, -1], "float32")
    np.testing.assert_allclose(LayerNorm()(x), x / np.sqrt(2e-6), rtol=1e-4)


def test_statistics_are_float32_under_mixed_precision():
    # The mean is so large that bfloat16 statistics would lose the deviations.
    x = (256 + np.tile([0.0, 2.0], 8)).reshape(1, 16).astype("float32")
    output = LayerNorm(dtype="mixed_bfloat16")(x)
    np.testing.assert_allclose(np.asarray(output, "float32"), np.tile([-1.0, 1.0], 8)[None], atol=1e-2)


def test_only_the_last_axis_is_supported():
    np.testing.assert_array_equal(LayerNorm(axis=2)(X), LayerNorm(axis=[-1])(X))
    for axis in (1, [1, 2]):
        with pytest.raises(ValueError, match="axis=-1"):
            LayerNorm(axis=axis).build(X.shape)
