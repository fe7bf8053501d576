from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.masked_patch.model import MaskedPatchModel, masked_patch_batches, masked_patch_loss
from keras_vit.recipes.masked_patch.reconstruction import reconstruct
from keras_vit.recipes.masked_patch.targets import MASK, patch_targets
from keras_vit.recipes.recipe import Data, MaskedPatch, Run

RECIPE = MaskedPatch(run=Run(seed=3))
TARGETS = ("mean_color", "downsampled_color", "pixels")
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("float32")


@pytest.fixture
def pixels():
    return np.random.default_rng(2).uniform(0, 255, (6, 16, 16, 3)).astype("float32")


@pytest.fixture
def batches(pixels):
    dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(6))).repeat()
    return lambda target="mean_color": masked_patch_batches(dataset, 4, replace(RECIPE, target=target))


@pytest.mark.slow
def test_pixels_are_scaled_by_the_recipe(pixels):
    data = Data(mean=(0.5, 0.25, 0.0), std=(1.0, 0.5, 0.25))
    dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(6)))
    inputs, _ = next(masked_patch_batches(dataset, 4, replace(RECIPE, data=data)).as_numpy_iterator())
    expected = (pixels / 255 - np.array(data.mean)) / np.array(data.std)
    np.testing.assert_allclose(inputs["images"], expected, atol=1e-5)


def test_corrupt_masks_replaces_or_keeps_embeddings(trained_toy):
    model = MaskedPatchModel(trained_toy(num_classes=0))
    embeddings = np.random.default_rng(0).standard_normal((2, 4, 12)).astype("float32")
    source = np.array([[MASK, 3, 2, 3], [1, 1, 2, MASK]], "int32")
    corrupted = np.asarray(model.corrupt(embeddings, source))
    np.testing.assert_array_equal(corrupted[0, 0], model.mask.numpy()[0, 0])
    np.testing.assert_array_equal(corrupted[0, 1], embeddings[0, 3])
    np.testing.assert_array_equal(corrupted[0, 2:], embeddings[0, 2:])
    np.testing.assert_array_equal(corrupted[1, 0], embeddings[1, 1])
    np.testing.assert_array_equal(corrupted[1, 3], model.mask.numpy()[0, 0])


@pytest.mark.parametrize("pooling", ["token", "gap"])
def test_predictions_use_the_output_tokens_of_corrupted_patches(trained_toy, batches, pooling):
    model = MaskedPatchModel(trained_toy(pooling=pooling, num_classes=0))
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    inputs, _ = next(iter(batches()))
    embeddings = model.corrupt(model.vit.embed(inputs["images"]), inputs["source"])
    tokens = np.asarray(model.vit.encode(embeddings))[:, -16:]  # without a class token, if there is one
    chosen = np.take_along_axis(tokens, inputs["corrupted"].numpy()[..., None], axis=1)
    expected = chosen @ model.head.kernel.numpy() + model.head.bias.numpy()
    np.testing.assert_allclose(model(inputs), expected, atol=1e-4)


def test_masked_pixels_do_not_change_the_output(trained_toy, batches, pixels):
    """The targets do not leak."""
    model = MaskedPatchModel(trained_toy(num_classes=0))
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    inputs, _ = next(iter(batches()))
    # Patches whose embedding is used nowhere.
    hidden = np.array([[number not in row for number in range(16)] for row in inputs["source"].numpy()])
    assert hidden.sum() > 20
    cells = np.kron(hidden.reshape(6, 4, 4), np.ones((1, 4, 4), bool)).astype(bool)
    other = np.where(cells[..., None], -inputs["images"].numpy(), inputs["images"].numpy())
    assert not np.allclose(other, inputs["images"])
    np.testing.assert_allclose(model({**inputs, "images": other}), model(inputs), atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_targets_are_of_the_corrupted_patches_from_raw_pixels(batches, pixels, target):
    inputs, targets = next(iter(batches(target)))
    everything = patch_targets(pixels, 4, target).numpy()
    for row in range(6):
        np.testing.assert_array_equal(targets[row], everything[row][inputs["corrupted"][row]])
    np.testing.assert_allclose(inputs["images"], pixels / 127.5 - 1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mean_color", "pixels"])
def test_fit_reduces_the_loss(toy, batches, target):
    model = MaskedPatchModel(toy(num_classes=0, depth=1), target)
    model.compile(keras.optimizers.Adam(1e-2), masked_patch_loss(target), jit_compile=False)
    losses = model.fit(batches(target), steps_per_epoch=10, epochs=2, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    if target == "mean_color":
        assert losses[0] < np.log(512) * 1.05  # the head starts at zeros, so at log 512


@pytest.mark.parametrize("target,side", list(zip(TARGETS, (4, 16, 16))))
def test_reconstructions_equal_targets_where_nothing_is_corrupted(trained_toy, target, side):
    model = MaskedPatchModel(trained_toy(num_classes=0), target)
    drawn = reconstruct(model, PIXELS, MaskedPatch(target=target, corrupted_fraction=0.25), seed=1)
    assert drawn.predicted.shape == drawn.targets.shape == (3, side, side, 3)
    assert drawn.inputs.shape == (3, 16, 16, 3) and drawn.masked.shape == (3, 16, 16)
    assert {array.dtype for array in (drawn.inputs, drawn.predicted, drawn.targets)} == {np.dtype("uint8")}
    changed = (drawn.predicted != drawn.targets).any(axis=-1)
    cells = changed.reshape(3, 4, side // 4, 4, side // 4).any(axis=(2, 4))
    assert 0 < cells.sum(axis=(1, 2)).max() <= 4  # a quarter of 16 patches
    if target == "pixels":
        assert np.abs(drawn.targets.astype(int) - PIXELS).max() <= 1


def test_masked_fraction_of_the_pixels_of_a_reconstruction(trained_toy):
    drawn = reconstruct(
        MaskedPatchModel(trained_toy(num_classes=0)), np.zeros((40, 16, 16, 3), "float32"), MaskedPatch()
    )
    cells = drawn.masked.reshape(40, 4, 4, 4, 4)
    assert (cells.all(axis=(2, 4)) == cells.any(axis=(2, 4))).all()
    assert 0.34 < drawn.masked.mean() < 0.46
