"""Folding and equalization do not change what a model computes."""

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.parity import logit_cosine
from keras_vit.export.tflite import equalize
from keras_vit.export.tflite.calibration import attention_ranges, channel_ranges
from keras_vit.export.tflite.equalize import MAX_RATIO, balance_attention, equalize_channels, fold_norms
from keras_vit.export.tflite.graph_rewrite import export_copy, layer_norm_outputs, normalize
from keras_vit.export.tflite.interpreter import run_tflite
from keras_vit.export.tflite.signatures import signature_function

IMAGES = np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3)).astype("float32")


@pytest.fixture
def copy():
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=4, depth=2, width=32, mlp_dim=64, num_heads=2, num_classes=4, layer_scale=0.5
    )
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    gamma = model.encoder.blocks[0].norm_mlp.gamma
    gamma.assign([30.0, 0.0, *gamma.numpy()[2:]])  # an outlier channel, and one that is constant
    return export_copy(model)


def run(copy):
    return np.concatenate([signature_function(copy, "classify")(one[None])["probabilities"] for one in IMAGES])


def test_fold_norms_removes_scales(copy):
    before = run(copy)
    fold_norms(copy)
    np.testing.assert_allclose(run(copy), before, atol=1e-5)
    for block in copy.encoder.blocks:
        for norm in (block.norm_attention, block.norm_mlp):
            np.testing.assert_array_equal([norm.gamma, norm.beta], [np.ones(32), np.zeros(32)])
        np.testing.assert_array_equal(block.scale_mlp.gamma, np.ones(32))


@pytest.mark.parametrize("folded", [False, True])
def test_equalize_channels_narrows_outliers_only(copy, folded):
    if folded:
        fold_norms(copy)
    before, ranges = run(copy), channel_ranges(copy, IMAGES)
    equalize_channels(copy, *ranges)
    np.testing.assert_allclose(run(copy), before, atol=1e-4)
    narrowed = 0
    for old_low, old_high, low, high in zip(*ranges, *channel_ranges(copy, IMAGES)):
        old, new = np.maximum(-old_low, old_high), np.maximum(-low, high)
        np.testing.assert_allclose(new, np.minimum(old, MAX_RATIO * np.median(old)), rtol=1e-3, atol=1e-5)
        narrowed += np.sum(new < 0.9 * old)
    assert 1 <= narrowed < 8 if not folded else narrowed < 3


def test_balance_attention_equalizes_queries_and_keys(copy):
    qkv = copy.encoder.blocks[0].attention.qkv
    qkv.kernel.assign(qkv.kernel.numpy() * np.where(np.arange(96) % 32 == 3, [[20.0]], 1.0))
    before, old = run(copy), attention_ranges(copy, IMAGES)
    balance_attention(copy, old)
    np.testing.assert_allclose(run(copy), before, atol=1e-4)
    for of_block, largest in zip(old, attention_ranges(copy, IMAGES)):
        query, key, value = np.split(largest, 3)
        np.testing.assert_allclose(query, key, rtol=1e-3)
        np.testing.assert_allclose(value, np.split(of_block, 3)[2], rtol=1e-3)


def test_constant_channels_are_unchanged(copy):
    before, zeros = run(copy), [np.zeros(32)] * 4
    equalize_channels(copy, zeros, zeros)
    np.testing.assert_allclose(run(copy), before, atol=1e-5)


@pytest.mark.slow
def test_converter_does_not_undo_equalization(copy, tmp_path, monkeypatch):
    """The converter folds scales into kernels, which would restore the original ranges."""
    fold_norms(copy)
    copy.encoder.norm.gamma.assign(np.ones(32))
    table = copy.positions.table
    table.assign(table.numpy() + 60.0 * np.eye(32)[5])  # an outlier channel in all tokens, as in large ViTs
    images = np.random.default_rng(2).integers(0, 256, (40, 16, 16, 3)).astype("float32")
    expected = np.concatenate([copy(normalize(one[None], copy.preprocessing)) for one in images])
    errors = {}
    for max_ratio in (equalize.MAX_RATIO, np.inf):
        monkeypatch.setattr(equalize, "MAX_RATIO", max_ratio)
        path = write_tflite(copy, tmp_path, ["mixed-int8"], images)["mixed-int8"]
        found, _ = run_tflite(path, images)
        errors[max_ratio] = 1 - logit_cosine(found, np.asarray(tf.nn.softmax(expected))).mean()
    assert errors[MAX_RATIO] < 0.5 * errors[np.inf]


def test_channel_ranges_cover_all_images(copy):
    lows, highs = channel_ranges(copy, IMAGES)
    outputs = [layer_norm_outputs(copy, tf.constant(one[None])) for one in IMAGES]
    assert len(lows) == 4
    np.testing.assert_allclose(lows[3], np.min([one[3] for one in outputs], axis=(0, 1, 2)), atol=1e-5)
    np.testing.assert_allclose(highs[0], np.max([one[0] for one in outputs], axis=(0, 1, 2)), atol=1e-5)
