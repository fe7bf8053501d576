"""Weights that are moved about compute the same."""

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.export.calibration import channel_ranges
from keras_vit.export.device_form import device_copy, device_function, normalised_tokens
from keras_vit.export.fold import even_out, fold_norms

PIXELS = np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3)).astype("float32")


@pytest.fixture
def copy():
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=4, depth=2, width=32, mlp_dim=64, num_heads=2, num_classes=4, layer_scale=0.5
    )
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    gamma = model.encoder.blocks[0].norm_mlp.gamma
    gamma.assign([30.0, 0.0, *gamma.numpy()[2:]])  # one channel far out, one without any range
    return device_copy(model)


def run(copy):
    return np.concatenate([device_function(copy, "classify")(one[None])["probabilities"] for one in PIXELS])


def test_folded_norms_leave_no_scales(copy):
    before = run(copy)
    fold_norms(copy)
    np.testing.assert_allclose(run(copy), before, atol=1e-5)
    for block in copy.encoder.blocks:
        for norm in (block.norm_attention, block.norm_mlp):
            np.testing.assert_array_equal([norm.gamma, norm.beta], [np.ones(32), np.zeros(32)])
        np.testing.assert_array_equal(block.scale_mlp.gamma, np.ones(32))


@pytest.mark.parametrize("folded", [False, True])
def test_evened_channels_have_one_range_and_compute_the_same(copy, folded):
    if folded:
        fold_norms(copy)
    before, ranges = run(copy), channel_ranges(copy, PIXELS)
    even_out(copy, *ranges)
    np.testing.assert_allclose(run(copy), before, atol=1e-4)
    lows, highs = channel_ranges(copy, PIXELS)
    for place, (low, high) in enumerate(zip(lows, highs)):
        used = ranges[1][place] - ranges[0][place] > 1e-3
        reaches_zero = (ranges[0][place] <= 0) & (ranges[1][place] >= 0)
        spread = (high - low)[used & reaches_zero]
        assert spread.max() < 1.01 * spread.min() and len(spread) > 20


def test_ranges_are_those_of_all_pictures(copy):
    lows, highs = channel_ranges(copy, PIXELS)
    normed = [normalised_tokens(copy, tf.constant(one[None])) for one in PIXELS]
    assert len(lows) == 4
    np.testing.assert_allclose(lows[3], np.min([one[3] for one in normed], axis=(0, 1, 2)), atol=1e-5)
    np.testing.assert_allclose(highs[0], np.max([one[0] for one in normed], axis=(0, 1, 2)), atol=1e-5)
