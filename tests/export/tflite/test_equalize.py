"""Folding and equalization do not change what a model computes."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.export.tflite.calibration import attention_ranges
from keras_vit.export.tflite.equalize import balance_attention, fold_norms, fold_pixels
from keras_vit.export.tflite.graph_rewrite import export_copy
from keras_vit.export.tflite.signatures import signature_function

IMAGES = np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3)).astype("float32")


def build(**options):
    config = {"depth": 2, "width": 32, "mlp_dim": 64, "num_heads": 2, "num_classes": 4, "layer_scale": 0.5, **options}
    model = keras_vit.VisionTransformer(image_size=16, patch_size=4, **config)
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    gamma = model.encoder.blocks[0].norm_mlp.gamma
    gamma.assign([30.0, 0.0, *gamma.numpy()[2:]])  # an outlier channel, and one that is constant
    return export_copy(model)


@pytest.fixture
def copy():
    return build()


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


def test_queries_of_relative_positions_are_not_balanced():
    copy = build(position_embedding="relative")
    before, ranges = run(copy), attention_ranges(copy, IMAGES)
    balance_attention(copy, [of_block * np.linspace(1, 5, 96) for of_block in ranges])
    np.testing.assert_allclose(run(copy), before, atol=1e-5)


def test_fold_pixels_reads_pixels(copy):
    copy.preprocessing = replace(copy.preprocessing, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    before = run(copy)
    fold_pixels(copy)
    traced = tf.function(signature_function(copy, "classify"))  # eager layers check the range of pixels
    found = np.concatenate([traced(tf.constant(one[None]))["probabilities"] for one in IMAGES])
    assert copy.takes_pixels
    np.testing.assert_allclose(found, before, atol=1e-5)


def test_pixels_of_a_backbone_are_not_folded():
    copy = keras_vit.ViT("R6+Ti/4", image_size=32, num_classes=3)
    fold_pixels(copy)
    assert not hasattr(copy, "takes_pixels")
