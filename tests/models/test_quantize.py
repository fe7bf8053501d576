"""Keras's own `model.quantize`."""

import numpy as np
import pytest
import tensorflow as tf


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_eight_bits_are_the_same_eagerly_and_under_xla(trained_toy, images):
    model, full = trained_toy(stochastic_depth=0.1), trained_toy()
    full.set_weights(model.get_weights())
    model.quantize("int8")  # before any call
    expected, eager = np.asarray(full(images)), np.asarray(model(images))
    assert 1e-4 < np.abs(eager - expected).max() < 0.1 * np.abs(expected).max()
    np.testing.assert_allclose(tf.function(model, jit_compile=True)(images), eager, atol=0.01 * np.abs(eager).max())


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_quantized_model_is_kept_as_weights(trained_toy, images, tmp_path):
    model, again = trained_toy(), trained_toy()
    model.quantize("int8")
    for make in (lambda: model.save(tmp_path / "model.keras"), lambda: model.with_head(2), lambda: model.resized(32)):
        with pytest.raises(ValueError, match="was quantized by Keras.*save the weights"):
            make()
    model.save_weights(tmp_path / "model.weights.h5")
    again.quantize("int8")
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(again(images), model(images))
