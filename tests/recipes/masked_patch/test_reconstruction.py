import numpy as np
import pytest

from keras_vit.recipes.masked_patch.model import MaskedPatchModel
from keras_vit.recipes.masked_patch.reconstruction import reconstruct
from keras_vit.recipes.masked_patch.targets import TARGETS
from keras_vit.recipes.recipe import MaskedPatch


@pytest.mark.parametrize("target,side", list(zip(TARGETS, (4, 16, 16))))
def test_truth_stands_wherever_nothing_was_corrupted(trained_toy, target, side):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("float32")
    model = MaskedPatchModel(trained_toy(num_classes=0), target)
    drawn = reconstruct(model, pixels, MaskedPatch(target=target, corrupted_fraction=0.25), seed=1)
    assert drawn.predicted.shape == drawn.true.shape == (3, side, side, 3)
    assert drawn.seen.shape == (3, 16, 16, 3) and drawn.masked.shape == (3, 16, 16)
    assert {array.dtype for array in (drawn.seen, drawn.predicted, drawn.true)} == {np.dtype("uint8")}
    changed = (drawn.predicted != drawn.true).any(axis=-1)
    cells = changed.reshape(3, 4, side // 4, 4, side // 4).any(axis=(2, 4))
    assert 0 < cells.sum(axis=(1, 2)).max() <= 4  # a quarter of 16 patches


def test_pixels_target_shows_the_image_itself(trained_toy):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype("float32")
    drawn = reconstruct(MaskedPatchModel(trained_toy(num_classes=0), "pixels"), pixels, MaskedPatch(target="pixels"))
    assert np.abs(drawn.true.astype(int) - pixels).max() <= 1


def test_masked_pixels_are_whole_patches_of_about_two_fifths(trained_toy):
    pixels = np.zeros((40, 16, 16, 3), "float32")
    drawn = reconstruct(MaskedPatchModel(trained_toy(num_classes=0)), pixels, MaskedPatch())
    cells = drawn.masked.reshape(40, 4, 4, 4, 4)
    assert (cells.all(axis=(2, 4)) == cells.any(axis=(2, 4))).all()
    assert 0.34 < drawn.masked.mean() < 0.46
