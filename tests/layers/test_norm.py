import keras
import numpy as np
import pytest

from keras_vit.layers import LayerNorm


def test_equals_keras_layer_normalization():
    x = np.random.default_rng(0).standard_normal((2, 3, 16)).astype("float32")
    ours, theirs = LayerNorm(), keras.layers.LayerNormalization(epsilon=1e-6)
    ours.build(x.shape), theirs.build(x.shape)
    weights = [np.linspace(0.5, 2, 16), np.linspace(-1, 1, 16)]
    ours.set_weights(weights), theirs.set_weights(weights)
    np.testing.assert_allclose(ours(x), theirs(x), atol=1e-5)


def test_default_epsilon():
    x = np.full((1, 4), 1e-3, "float32") * np.array([1, -1, 1, -1], "float32")
    np.testing.assert_allclose(LayerNorm()(x), x / np.sqrt(2e-6), rtol=1e-4)


def test_statistics_are_float32_under_mixed_precision():
    # The mean is so large that bfloat16 statistics would lose the deviations.
    x = (256 + np.tile([0.0, 2.0], 8)).reshape(1, 16).astype("float32")
    output = LayerNorm(dtype="mixed_bfloat16")(x)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    np.testing.assert_allclose(np.asarray(output, "float32"), np.tile([-1.0, 1.0], 8)[None], atol=1e-2)


def test_without_scale_and_center():
    x = np.random.default_rng(0).standard_normal((2, 8)).astype("float32")
    layer = LayerNorm(scale=False, center=False)
    np.testing.assert_allclose(np.asarray(layer(x)).std(axis=-1), 1, atol=1e-4)
    assert not layer.weights


def test_only_the_last_axis_is_supported():
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32")
    np.testing.assert_array_equal(LayerNorm(axis=2)(x), LayerNorm(axis=[-1])(x))
    for axis in (1, [1, 2]):
        with pytest.raises(ValueError, match="use axis=-1. Received: axis="):
            LayerNorm(axis=axis).build(x.shape)
