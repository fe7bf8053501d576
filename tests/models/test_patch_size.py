"""Other patch sizes with the same weights: `with_patch_size`."""

import numpy as np
import pytest
from goldens import golden_file, golden_io

import keras_vit
from keras_vit.named_weights import named_weights


def test_logits_equal_those_of_big_vision(tmp_path):
    """FlexiViT's own model, at its patch size, at half and at twice of it; it resamples positions as "half_pixel"."""
    io = golden_io("big_vision_flexivit")
    model = keras_vit.load(golden_file(tmp_path, "big_vision_flexivit"), num_heads=3, image_size=32)
    assert (model.patch_size, model.grid) == ((8, 8), (4, 4))
    np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-5)
    small = model.with_patch_size(4, resample="half_pixel")
    assert small.grid == (8, 8)
    np.testing.assert_allclose(small(io["images"]), io["logits_small_patches"], atol=1e-5)
    large = model.with_patch_size(16, image_size=64)
    assert large.grid == (4, 4) and large.preprocessing.image_size == (64, 64)
    np.testing.assert_allclose(large(io["larger"]), io["logits_large"], atol=1e-5)


def test_everything_else_is_kept(trained_toy, tmp_path):
    model = trained_toy(class_names=list("abcde"), preprocessing="imagenet", register_tokens=1, stochastic_depth=0.1)
    assert model.with_patch_size(4).config == model.config
    model.with_patch_size((8, 2)).save(tmp_path / "model.keras")
    other = keras_vit.load(tmp_path / "model.keras")
    assert (other.patch_size, other.grid, other.class_names) == ((8, 2), (2, 8), model.class_names)
    assert other.preprocessing == model.preprocessing
    expected = keras_vit.layers.resample_grid(model.positions.table, (4, 4), (2, 8), prefix_tokens=2)
    np.testing.assert_array_equal(other.positions.table, expected)
    for name, weight in named_weights(other).items():
        if name not in ("patch_embedding/projection/kernel", "positions/table"):
            np.testing.assert_array_equal(weight, named_weights(model)[name], err_msg=name)
    np.testing.assert_array_equal(model.with_patch_size(4, 24).positions.table, model.resized(24).positions.table)


@pytest.mark.parametrize(
    "changes,patch_size,message",
    [
        ({}, 5, "image_size=15 or image_size=20"),
        ({}, 0, "`patch_size`"),
        ({"position_embedding": "relative"}, 8, "Relative positions"),
        ({"resnet_stages": (1,), "patch_size": 8}, 16, r"\(8, 8\), .*patch_size=\(16, 16\)"),
    ],
)
def test_sizes_and_models_that_do_not_fit(toy, changes, patch_size, message):
    with pytest.raises(ValueError, match=message):
        toy(**changes).with_patch_size(patch_size)
