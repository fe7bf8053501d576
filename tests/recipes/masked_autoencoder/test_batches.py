from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.masked_autoencoder.batches import masked_autoencoder_batches, pixel_targets
from keras_vit.recipes.recipe import Data, MaskedAutoencoder, Run

RECIPE = MaskedAutoencoder(run=Run(seed=3))


@pytest.fixture
def pixels():
    return np.random.default_rng(2).uniform(0, 255, (6, 16, 16, 3)).astype("float32")


def batches(pixels, recipe=RECIPE, *options):
    dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(len(pixels)))).repeat()
    return masked_autoencoder_batches(dataset, 4, recipe, *options)


def patches_of(image, side=4):
    """Row by row, each by row, column and channel."""
    corners = [(i, j) for i in range(0, len(image), side) for j in range(0, len(image), side)]
    return np.stack([image[i : i + side, j : j + side].reshape(-1) for i, j in corners])


@pytest.mark.parametrize("normalized", [True, False])
def test_targets_are_the_masked_patches_of_the_normalized_image(pixels, normalized):
    data = Data(mean=(0.5, 0.25, 0.0), std=(1.0, 0.5, 0.25))
    recipe = replace(RECIPE, data=data, normalize_targets=normalized)
    inputs, targets = next(batches(pixels, recipe).as_numpy_iterator())
    images = (pixels / 255 - np.array(data.mean)) / np.array(data.std)
    np.testing.assert_allclose(inputs["images"], images, atol=1e-5)
    for image, masked, target in zip(images, inputs["masked"], targets):
        expected = patches_of(image)[masked]
        if normalized:
            mean, variance = expected.mean(axis=1, keepdims=True), expected.var(axis=1, ddof=1, keepdims=True)
            expected = (expected - mean) / np.sqrt(variance + 1e-6)
        np.testing.assert_allclose(target, expected, atol=1e-4)


def test_patch_of_one_color_has_targets_of_zero():
    assert not np.any(pixel_targets(np.full((1, 4, 4, 3), 0.3), 2, True))


def test_hosts_share_the_masks_of_the_global_batch(pixels):
    inputs, targets = next(batches(pixels, RECIPE, 5).as_numpy_iterator())
    parts = [next(batches(pixels[2 * i :][:2], RECIPE, 5, (i, 3)).as_numpy_iterator()) for i in range(3)]
    for name, value in inputs.items():
        np.testing.assert_array_equal(np.concatenate([part[0][name] for part in parts]), value)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), targets)


def test_masks_depend_on_seed_and_step_only(pixels):
    first, again = [list(batches(pixels).take(2)) for _ in range(2)]
    for one, other in zip(first, again):
        np.testing.assert_array_equal(one[0]["masked"], other[0]["masked"])
    assert not np.array_equal(first[0][0]["masked"], first[1][0]["masked"])
    later = next(iter(batches(pixels, RECIPE, 1)))
    np.testing.assert_array_equal(later[0]["masked"], first[1][0]["masked"])


def test_shapes_are_static(pixels):
    inputs, targets = batches(pixels).element_spec
    shapes = {name: tuple(spec.shape) for name, spec in inputs.items()}
    assert shapes == {"images": (6, 16, 16, 3), "visible": (6, 4), "masked": (6, 12), "source": (6, 16)}
    assert targets.shape == (6, 12, 48)
