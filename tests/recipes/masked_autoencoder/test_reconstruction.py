import numpy as np
import pytest

from keras_vit.recipes.masked_autoencoder.masking import draw_masking
from keras_vit.recipes.masked_autoencoder.model import MaskedAutoencoderModel
from keras_vit.recipes.masked_autoencoder.reconstruction import reconstruct
from keras_vit.recipes.recipe import MaskedAutoencoder

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("float32")


@pytest.fixture
def model(trained_toy):
    return MaskedAutoencoderModel(trained_toy(num_classes=0), 1, 8, 2)


def test_visible_patches_show_the_image(model):
    drawn = reconstruct(model, PIXELS, MaskedAutoencoder(masked_fraction=0.5), seed=1)
    masked = draw_masking((1, 0), 3, 16, 0.5).masked.numpy()
    cells = np.zeros((3, 16), bool)
    np.put_along_axis(cells, masked, True, axis=1)
    np.testing.assert_array_equal(drawn.masked, np.kron(cells.reshape(3, 4, 4), np.ones((1, 4, 4), bool)))
    np.testing.assert_array_equal(drawn.inputs, PIXELS)
    np.testing.assert_array_equal(drawn.targets, PIXELS)
    np.testing.assert_array_equal(drawn.predicted[~drawn.masked], PIXELS[~drawn.masked])
    assert (drawn.predicted[drawn.masked] != PIXELS[drawn.masked]).any() and drawn.predicted.dtype == "uint8"


def test_predictions_of_normalized_pixels_get_the_mean_of_the_true_patch(model):
    model.head.kernel.assign(np.zeros(model.head.kernel.shape))
    model.head.bias.assign(np.zeros(model.head.bias.shape))
    # One mean over the channels too: with the same scale for all of them, it is the mean of the pixels.
    recipe = MaskedAutoencoder()
    gray = np.repeat(PIXELS[..., :1], 3, axis=-1)
    data = type(recipe.data)(mean=(0.5,) * 3, std=(0.25,) * 3)
    drawn = reconstruct(model, gray, MaskedAutoencoder(data=data))
    means = gray.reshape(3, 4, 4, 4, 4, 3).mean(axis=(2, 4, 5), keepdims=True)
    expected = np.broadcast_to(means, (3, 4, 4, 4, 4, 3)).reshape(3, 16, 16, 3)
    assert np.abs(drawn.predicted[drawn.masked] - expected[drawn.masked]).max() <= 0.51


def test_predictions_of_pixels_are_scaled_back(model):
    model.head.kernel.assign(np.zeros(model.head.kernel.shape))
    model.head.bias.assign(np.ones(model.head.bias.shape))
    drawn = reconstruct(model, PIXELS, MaskedAutoencoder(normalize_targets=False))
    expected = np.round(255 * np.array([0.485 + 0.229, 0.456 + 0.224, 0.406 + 0.225]))
    np.testing.assert_array_equal(drawn.predicted[drawn.masked], np.broadcast_to(expected, (3 * 12 * 16, 3)))
