"""Folding, equalization and rotation do not change what a model computes, and remove outlier channels."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from randomize import randomize

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.exported.parity import logit_cosine
from keras_vit.export.tflite.encoder import attention_ranges, normalize
from keras_vit.export.tflite.equalize import (
    balance_attention,
    fold_pixels,
    folded_copy,
    orthogonal,
    rotate_tokens,
)
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.export.tflite.request import available_signatures
from keras_vit.export.tflite.signatures import signature_function

IMAGES = np.random.default_rng(1).integers(0, 256, (40, 16, 16, 3)).astype("float32")
VARIANTS = {
    "plain": {},
    "mean": {"pooling": "gap", "layer_scale": 0.5},
    "fc_norm": {"pooling": "gap", "norm_after_pooling": True},
    "attention": {"pooling": "map", "position_placement": "every_layer"},
    "registers": {"register_tokens": 2, "prefix_positions": False, "qk_norm": True},
    "distillation": {"distillation": True, "position_placement": "shared"},
    "hidden": {"representation_size": 8, "position_embedding": "sincos_2d"},
    "odd": {"width": 36, "num_heads": 3},
    "CLIP": {"norm_before_encoder": True, "gelu": "quick"},
    "CLIP_positions": {"norm_before_encoder": True, "position_placement": "every_layer"},
    "DINOv3": {"swiglu": True, "layer_scale": 0.5, "position_embedding": "rotary", "register_tokens": 2},
    "DINOv2": {"swiglu": True, "layer_scale": 0.5, "pooling": "token_and_gap", "register_tokens": 2},
}


def build(**options):
    keras.utils.set_random_seed(0)
    config = {"depth": 2, "width": 32, "mlp_dim": 64, "num_heads": 2, "num_classes": 4, **options}
    model = keras_vit.VisionTransformer(image_size=16, patch_size=4, **config)
    return randomize(model, 0.3, seed=0)


def with_outlier(**options):
    model = build(**options)
    gamma = model.encoder.blocks[0].norm_mlp.gamma
    gamma.assign([30.0, 0.0, *gamma.numpy()[2:]])  # an outlier channel, and one that is constant
    return model


def run(copy):
    return np.concatenate([signature_function(copy, "classify")(one[None])["probabilities"] for one in IMAGES[:3]])


def test_fold_norms_removes_scales():
    model = with_outlier(layer_scale=0.5)
    copy, expected = folded_copy(model), tf.nn.softmax(model(normalize(IMAGES[:3], model.preprocessing)))
    np.testing.assert_allclose(run(copy), expected, atol=1e-5)
    for block in copy.encoder.blocks:
        for norm in (block.norm_attention, block.norm_mlp):
            np.testing.assert_array_equal([norm.gamma, norm.beta], [np.ones(32), np.zeros(32)])
        np.testing.assert_array_equal(block.scale_mlp.gamma, np.ones(32))


def test_balance_attention_equalizes_queries_and_keys():
    copy = folded_copy(with_outlier(layer_scale=0.5))
    qkv = copy.encoder.blocks[0].attention.qkv
    qkv.kernel.assign(qkv.kernel.numpy() * np.where(np.arange(96) % 32 == 3, [[20.0]], 1.0))
    qkv.bias.assign(qkv.bias.numpy() + np.repeat([0, 500, 500], 32))  # as large ViTs have: of all tokens
    before = run(copy)
    balance_attention(copy, attention_ranges(copy, IMAGES[:3]))
    np.testing.assert_allclose(run(copy), before, atol=1e-4)
    for low, high, mean in attention_ranges(copy, IMAGES[:3]):
        query, key, value = np.split(np.maximum(-low, high), 3)
        assert key.max() < 50
        np.testing.assert_allclose(query, key, rtol=1e-3)
        np.testing.assert_allclose(value, key.max(), rtol=1e-3)
        np.testing.assert_allclose(-low[32:64], high[32:64], rtol=2e-3)  # keys are centered
        np.testing.assert_allclose(mean[64:], 0, atol=1e-3)


@pytest.mark.parametrize("changes", [{}, {"pooling": "gap", "register_tokens": 2}])
def test_balance_of_pairs_that_turn(changes):
    copy = folded_copy(with_outlier(position_embedding="rotary", layer_scale=0.5, **changes))
    before, ranges = run(copy), attention_ranges(copy, IMAGES[:3])
    kernel = copy.encoder.blocks[0].attention.qkv.kernel.numpy()
    balance_attention(copy, [of_block * np.linspace(1, 5, 96) for of_block in ranges])
    np.testing.assert_allclose(run(copy), before, atol=1e-5)
    assert np.ptp(copy.encoder.blocks[0].attention.qkv.kernel.numpy() / kernel, axis=1).max() > 0.1


def test_queries_of_relative_positions_are_not_balanced():
    copy = folded_copy(with_outlier(position_embedding="relative", layer_scale=0.5))
    before, ranges = run(copy), attention_ranges(copy, IMAGES[:3])
    balance_attention(copy, [of_block * np.linspace(1, 5, 96) for of_block in ranges])
    np.testing.assert_allclose(run(copy), before, atol=1e-5)


def test_fold_pixels_reads_pixels():
    copy = folded_copy(with_outlier(layer_scale=0.5))
    copy.preprocessing = replace(copy.preprocessing, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    before = run(copy)
    fold_pixels(copy)
    traced = tf.function(signature_function(copy, "classify"))  # eager layers check the range of pixels
    assert copy.takes_pixels
    found = np.concatenate([traced(tf.constant(one[None]))["probabilities"] for one in IMAGES[:3]])
    np.testing.assert_allclose(found, before, atol=1e-5)
    hybrid = keras_vit.ViT("R6+Ti/4", image_size=32, num_classes=3)
    fold_pixels(hybrid)
    assert not hasattr(hybrid, "takes_pixels")


@pytest.mark.parametrize("variant", VARIANTS)
def test_rotation_does_not_change_outputs(variant):
    copy, image = folded_copy(build(**VARIANTS[variant])), tf.constant(IMAGES[:1])
    functions = [signature_function(copy, name) for name in available_signatures(copy)]
    before = [value for function in functions for value in function(image).values()]
    rotate_tokens(copy)
    assert (copy.encoder.norm or copy.pooled_norm).rotate_back.shape == (copy.config.width,) * 2
    after = [value for function in functions for value in function(image).values()]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=2e-5)


def test_models_that_are_not_rotated():
    for options in ({"axial": True}, {"pooling": "token_and_gap", "norm_after_pooling": True}):
        copy = folded_copy(build(**options))
        rotate_tokens(copy)
        assert not hasattr(copy.encoder.norm, "rotate_back")


@pytest.mark.parametrize("width", [1, 2, 36, 192])
def test_orthogonal_without_large_values(width):
    matrix = orthogonal(width)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(width), atol=1e-12)
    assert np.abs(matrix).max() <= np.sqrt(2 / width) + 1e-12


@pytest.mark.slow
@pytest.mark.extended
def test_outlier_channels_do_less_harm(tmp_path):
    model = build()
    table = model.positions.table
    table.assign(table.numpy() + 60.0 * np.eye(32)[5])  # in all tokens, as in large ViTs
    expected = np.concatenate([model(normalize(one[None], model.preprocessing)) for one in IMAGES])
    errors = {}
    for equalize in (True, False):
        (path,) = write_tflite(model, tmp_path, ["int8"], IMAGES, equalize=equalize).values()
        found, _ = run_tflite(path, IMAGES)
        errors[equalize] = 1 - logit_cosine(found, np.asarray(tf.nn.softmax(expected))).mean()
    assert errors[True] < 0.7 * errors[False], errors
