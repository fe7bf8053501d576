"""Weights that are moved about compute the same."""

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.parity import logit_cosine
from keras_vit.export.tflite import equalize as fold
from keras_vit.export.tflite.calibration import channel_ranges
from keras_vit.export.tflite.device_form import device_copy, device_function, normalised_tokens, normalized
from keras_vit.export.tflite.equalize import even_out, fold_norms
from keras_vit.export.tflite.interpreter import run_tflite

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
def test_outlying_channels_are_narrowed_and_the_model_computes_the_same(copy, folded):
    if folded:
        fold_norms(copy)
    before, ranges = run(copy), channel_ranges(copy, PIXELS)
    even_out(copy, *ranges)
    np.testing.assert_allclose(run(copy), before, atol=1e-4)
    narrowed = 0
    for old_low, old_high, low, high in zip(*ranges, *channel_ranges(copy, PIXELS)):
        old, new = np.maximum(-old_low, old_high), np.maximum(-low, high)
        np.testing.assert_allclose(new, np.minimum(old, 2 * np.median(old)), rtol=1e-3, atol=1e-5)
        narrowed += np.sum(new < 0.9 * old)
    assert 1 <= narrowed < 8 if not folded else narrowed < 3


def test_channels_without_any_range_are_left_alone(copy):
    before, zeros = run(copy), [np.zeros(32)] * 4
    even_out(copy, zeros, zeros)
    np.testing.assert_allclose(run(copy), before, atol=1e-5)


def test_the_file_keeps_what_was_evened_out(copy, tmp_path, monkeypatch):
    """The converter moves scales into kernels, and once moved these back: the files were as if nothing was done."""
    fold_norms(copy)
    copy.encoder.norm.gamma.assign(np.ones(32))
    table = copy.positions.table
    table.assign(table.numpy() + 60.0 * np.eye(32)[5])  # an outlier of all tokens, as in large ViTs
    pixels = np.random.default_rng(2).integers(0, 256, (40, 16, 16, 3)).astype("float32")
    expected = np.concatenate([copy(normalized(one[None], copy.preprocessing)) for one in pixels])
    errors = {}
    for widest in (fold.WIDEST, np.inf):
        monkeypatch.setattr(fold, "WIDEST", widest)
        path = write_tflite(copy, tmp_path, ["mixed-int8"], pixels)["mixed-int8"]
        found, _ = run_tflite(path, pixels)
        errors[widest] = 1 - logit_cosine(found, np.asarray(tf.nn.softmax(expected))).mean()
    assert errors[2.0] < 0.5 * errors[np.inf]


def test_ranges_are_those_of_all_images(copy):
    lows, highs = channel_ranges(copy, PIXELS)
    normed = [normalised_tokens(copy, tf.constant(one[None])) for one in PIXELS]
    assert len(lows) == 4
    np.testing.assert_allclose(lows[3], np.min([one[3] for one in normed], axis=(0, 1, 2)), atol=1e-5)
    np.testing.assert_allclose(highs[0], np.max([one[0] for one in normed], axis=(0, 1, 2)), atol=1e-5)
