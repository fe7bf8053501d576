"""Masked-patch pre-training: corruption, targets, model, reconstructions."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.pretraining.masked_patch import (
    MaskedPatchModel,
    draw_corruption,
    masked_patch_batches,
    patch_targets,
    quantize,
)
from keras_vit.recipes.pretraining.patches import MASK
from keras_vit.recipes.pretraining.reconstruction import color_of, reconstruct_corrupted
from keras_vit.recipes.recipe import MaskedPatch, Run


def test_quantize_to_bins_of_32_levels():
    colors = [[0, 0, 0], [31.9, 32, 255], [255, 0, 0], [0, 64, 96], [256, -1, 128]]
    np.testing.assert_array_equal(quantize(tf.constant(colors, tf.float32)), [0, 15, 448, 19, 452])
    np.testing.assert_array_equal(quantize(tf.cast(color_of(np.arange(512)), tf.float32)), np.arange(512))


def test_mean_color_of_a_patch():
    pixels = np.zeros((1, 4, 8, 3), "float32")
    pixels[0, :, :4] = [200, 0, 40]
    pixels[0, :2, 4:] = 255  # half of the second patch: its mean is 127.5
    classes = patch_targets(pixels, 4, "mean_color")
    np.testing.assert_array_equal(classes, [[6 * 64 + 0 + 1, 3 * 64 + 3 * 8 + 3]])


def test_downsampled_colors_are_means_of_cells_row_by_row():
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 8, 16, 3)).astype("float32")
    classes = patch_targets(pixels, 8, "downsampled_color")
    assert classes.shape == (2, 2, 16)
    for column in range(2):
        patch = pixels[1, :, 8 * column : 8 * column + 8]
        cells = patch.reshape(4, 2, 4, 2, 3).mean(axis=(1, 3)).reshape(16, 3)
        np.testing.assert_array_equal(classes[1, column], quantize(tf.constant(cells)))


def test_downsampling_a_patch_not_divisible_by_four():
    pixels = np.full((1, 14, 14, 3), 100.0, "float32")
    np.testing.assert_array_equal(patch_targets(pixels, 14, "downsampled_color"), np.full((1, 1, 16), 3 * 73))


def test_pixels_are_not_normalized():
    pixels = np.random.default_rng(0).uniform(0, 255, (1, 4, 4, 3)).astype("float32")
    targets = patch_targets(pixels, 2, "pixels")
    np.testing.assert_allclose(targets[0, 1], pixels[0, :2, 2:].reshape(-1) / 255, atol=1e-6)


@pytest.mark.parametrize(
    "patches,fraction,count", [(16, 0.5, 8), (49, 0.5, 24), (196, 0.15, 29), (4, 0.01, 1), (9, 1.0, 9)]
)
def test_corrupted_fraction_is_exact(patches, fraction, count):
    drawn = draw_corruption((0, 0), 32, patches, fraction)
    assert drawn.corrupted.shape == (32, count)
    for row in drawn.corrupted.numpy():
        assert len(set(row)) == count and 0 <= min(row) and max(row) < patches


def test_masked_and_replaced_fractions():
    drawn = draw_corruption((1, 2), 500, 100)
    masked = drawn.source.numpy() == MASK
    moved = (drawn.source.numpy() != np.arange(100)) & ~masked
    corrupted = np.zeros((500, 100), bool)
    np.put_along_axis(corrupted, drawn.corrupted.numpy(), True, axis=1)
    assert not (masked & ~corrupted).any() and not (moved & ~corrupted).any()
    fractions = masked.sum() / corrupted.sum(), moved.sum() / corrupted.sum()
    np.testing.assert_allclose(fractions, (0.8, 0.1), atol=0.01)
    for masked_fraction, expected in ((1.0, np.full(10, MASK)), (0.0, np.arange(10))):
        assert (draw_corruption((0, 0), 4, 10, 1.0, masked_fraction, 0.0).source.numpy() == expected).all()


def test_patches_are_chosen_uniformly():
    drawn = draw_corruption((3, 0), 4000, 8, masked_fraction=0.0, replaced_fraction=1.0)
    counts = np.bincount(drawn.corrupted.numpy().ravel(), minlength=8) / 4000
    np.testing.assert_allclose(counts, 0.5, atol=0.04)
    source = drawn.source.numpy()
    moved = source != np.arange(8)
    assert moved.sum() == 4000 * 4  # a replaced patch never gets its own embedding
    sources_of_first = np.bincount(source[moved[:, 0], 0], minlength=8) / moved[:, 0].sum()
    np.testing.assert_allclose(sources_of_first[1:], 1 / 7, atol=0.03)


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


@pytest.mark.parametrize("target,side", list(zip(TARGETS, (4, 16, 16))))
def test_reconstructions_equal_targets_where_nothing_is_corrupted(trained_toy, target, side):
    model = MaskedPatchModel(trained_toy(num_classes=0), target)
    drawn = reconstruct_corrupted(model, PIXELS, MaskedPatch(target=target, corrupted_fraction=0.25), seed=1)
    assert drawn.predicted.shape == drawn.targets.shape == (3, side, side, 3)
    assert drawn.inputs.shape == (3, 16, 16, 3) and drawn.masked.shape == (3, 16, 16)
    assert {array.dtype for array in (drawn.inputs, drawn.predicted, drawn.targets)} == {np.dtype("uint8")}
    changed = (drawn.predicted != drawn.targets).any(axis=-1)
    cells = changed.reshape(3, 4, side // 4, 4, side // 4).any(axis=(2, 4))
    assert 0 < cells.sum(axis=(1, 2)).max() <= 4  # a quarter of 16 patches
    if target == "pixels":
        assert np.abs(drawn.targets.astype(int) - PIXELS).max() <= 1
