"""Masks, targets and reconstructions of masked autoencoders."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.masked_autoencoder.batches import (
    draw_masking,
    masked_autoencoder_batches,
    masking_of,
    pixel_targets,
    reconstruct,
)
from keras_vit.recipes.masked_autoencoder.model import MaskedAutoencoderModel
from keras_vit.recipes.masked_patch.targets import MASK
from keras_vit.recipes.recipe import Data, MaskedAutoencoder, Run

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("float32")


@pytest.mark.parametrize("patches,fraction,count", [(16, 0.75, 12), (196, 0.75, 147), (4, 0.01, 1), (4, 0.99, 3)])
def test_masked_fraction_is_exact_and_source_the_position_among_the_visible(patches, fraction, count):
    drawn = draw_masking((0, 0), 8, patches, fraction)
    assert drawn.visible.shape == (8, patches - count) and drawn.masked.shape == (8, count)
    for visible, masked, source in zip(*(part.numpy() for part in drawn)):
        assert sorted([*visible, *masked]) == list(range(patches))
        np.testing.assert_array_equal(source[visible], np.arange(patches - count))
        assert (source[masked] == MASK).all()


def test_patches_are_chosen_uniformly_by_the_largest_noise():
    masked = draw_masking((3, 0), 4000, 8, 0.5).masked.numpy()
    np.testing.assert_allclose(np.bincount(masked.ravel(), minlength=8) / 4000, 0.5, atol=0.04)
    drawn = masking_of(tf.constant([[0.9, 0.1, 0.5, 0.3]]), 0.5)
    assert [part.numpy().tolist() for part in drawn] == [[[1, 3]], [[2, 0]], [[MASK, 0, MASK, 1]]]


@pytest.mark.parametrize("normalized", [True, False])
def test_targets_are_the_masked_patches_of_the_normalized_image(normalized):
    data = Data(mean=(0.5, 0.25, 0.0), std=(1.0, 0.5, 0.25))
    recipe = MaskedAutoencoder(data=data, run=Run(seed=3), normalize_targets=normalized)
    dataset = tf.data.Dataset.from_tensors((PIXELS, np.zeros(3)))
    inputs, targets = next(masked_autoencoder_batches(dataset, 4, recipe).as_numpy_iterator())
    images = (PIXELS / 255 - np.array(data.mean)) / np.array(data.std)
    np.testing.assert_allclose(inputs["images"], images, atol=1e-5)
    for image, masked, target in zip(images, inputs["masked"], targets):
        patches = [image[4 * (i // 4) :, 4 * (i % 4) :][:4, :4].reshape(-1) for i in range(16)]
        expected = np.stack(patches)[masked]
        if normalized:
            mean, variance = expected.mean(axis=1, keepdims=True), expected.var(axis=1, ddof=1, keepdims=True)
            expected = (expected - mean) / np.sqrt(variance + 1e-6)
        np.testing.assert_allclose(target, expected, atol=1e-4)


def test_patch_of_one_color_has_targets_of_zero():
    assert not np.any(pixel_targets(np.full((1, 4, 4, 3), 0.3), 2, True))


@pytest.fixture
def model(trained_toy):
    return MaskedAutoencoderModel(trained_toy(num_classes=0, depth=1), 1, 8, 2)


def test_visible_patches_show_the_image(model):
    drawn = reconstruct(model, PIXELS, MaskedAutoencoder(masked_fraction=0.5), seed=1)
    cells = np.zeros((3, 16), bool)
    np.put_along_axis(cells, draw_masking((1, 0), 3, 16, 0.5).masked.numpy(), True, axis=1)
    np.testing.assert_array_equal(drawn.masked, np.kron(cells.reshape(3, 4, 4), np.ones((1, 4, 4), bool)))
    for array in (drawn.inputs, drawn.targets):
        np.testing.assert_array_equal(array, PIXELS)
    np.testing.assert_array_equal(drawn.predicted[~drawn.masked], PIXELS[~drawn.masked])
    assert (drawn.predicted[drawn.masked] != PIXELS[drawn.masked]).any() and drawn.predicted.dtype == "uint8"


def test_predictions_are_scaled_back_to_pixels(model):
    """Predictions of zero are, normalized, the mean of the true patch; predictions of one, one deviation above it."""
    gray, recipe = np.repeat(PIXELS[..., :1], 3, axis=-1), MaskedAutoencoder()
    model.head.kernel.assign(np.zeros(model.head.kernel.shape))
    model.head.bias.assign(np.zeros(model.head.bias.shape))
    # One mean over the channels too: with the same scale for all of them, it is the mean of the pixels.
    drawn = reconstruct(model, gray, replace(recipe, data=replace(recipe.data, mean=(0.5,) * 3, std=(0.25,) * 3)))
    means = gray.reshape(3, 4, 4, 4, 4, 3).mean(axis=(2, 4, 5), keepdims=True)
    expected = np.broadcast_to(means, (3, 4, 4, 4, 4, 3)).reshape(3, 16, 16, 3)
    assert np.abs(drawn.predicted[drawn.masked] - expected[drawn.masked]).max() <= 0.51
    model.head.bias.assign(np.ones(model.head.bias.shape))
    drawn = reconstruct(model, PIXELS, MaskedAutoencoder(normalize_targets=False))
    expected = np.round(255 * np.array([0.485 + 0.229, 0.456 + 0.224, 0.406 + 0.225]))
    np.testing.assert_array_equal(drawn.predicted[drawn.masked], np.broadcast_to(expected, (3 * 12 * 16, 3)))
