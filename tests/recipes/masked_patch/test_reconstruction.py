import numpy as np
import pytest

from keras_vit.recipes.masked_patch.model import MaskedPatchModel
from keras_vit.recipes.masked_patch.reconstruction import reconstruct
from keras_vit.recipes.masked_patch.targets import TARGETS
from keras_vit.recipes.recipe import MaskedPatch


@pytest.mark.parametrize("target,side", list(zip(TARGETS, (4, 16, 16))))
def test_prediction_equals_target_where_nothing_is_corrupted(trained_toy, target, side):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("float32")
    model = MaskedPatchModel(trained_toy(num_classes=0), target)
    drawn = reconstruct(model, pixels, MaskedPatch(target=target, corrupted_fraction=0.25), seed=1)
    assert drawn.predicted.shape == drawn.targets.shape == (3, side, side, 3)
    assert drawn.inputs.shape == (3, 16, 16, 3) and drawn.masked.shape == (3, 16, 16)
    assert {array.dtype for array in (drawn.inputs, drawn.predicted, drawn.targets)} == {np.dtype("uint8")}
    changed = (drawn.predicted != drawn.targets).any(axis=-1)
    cells = changed.reshape(3, 4, side // 4, 4, side // 4).any(axis=(2, 4))
    assert 0 < cells.sum(axis=(1, 2)).max() <= 4  # a quarter of 16 patches


def test_target_pixels_are_the_image(trained_toy):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype("float32")
    drawn = reconstruct(MaskedPatchModel(trained_toy(num_classes=0), "pixels"), pixels, MaskedPatch(target="pixels"))
    assert np.abs(drawn.targets.astype(int) - pixels).max() <= 1


def test_masked_fraction_of_the_pixels(trained_toy):
    pixels = np.zeros((40, 16, 16, 3), "float32")
    drawn = reconstruct(MaskedPatchModel(trained_toy(num_classes=0)), pixels, MaskedPatch())
    cells = drawn.masked.reshape(40, 4, 4, 4, 4)
    assert (cells.all(axis=(2, 4)) == cells.any(axis=(2, 4))).all()
    assert 0.34 < drawn.masked.mean() < 0.46
