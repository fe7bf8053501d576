"""Rotated tokens compute the same and have no outlier channels."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.parity import logit_cosine
from keras_vit.export.tflite.equalize import folded_copy
from keras_vit.export.tflite.graph_rewrite import normalize
from keras_vit.export.tflite.interpreter import run_tflite
from keras_vit.export.tflite.rotate import orthogonal, rotate_tokens
from keras_vit.export.tflite.signatures import available_signatures, signature_function

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
    "DINOv2": {"swiglu": True, "layer_scale": 0.5, "pooling": "token_and_gap", "register_tokens": 2},
}


def build(**options):
    keras.utils.set_random_seed(0)
    config = {"depth": 2, "width": 32, "mlp_dim": 64, "num_heads": 2, "num_classes": 4, **options}
    model = keras_vit.VisionTransformer(image_size=16, patch_size=4, **config)
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    return model


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_are_unchanged(variant):
    copy = folded_copy(build(**VARIANTS[variant]))
    functions = [signature_function(copy, name) for name in available_signatures(copy)]

    def run():
        return [value for function in functions for value in function(tf.constant(IMAGES[:1])).values()]

    before = run()
    rotate_tokens(copy)
    assert copy.rotation.shape == (copy.config.width,) * 2
    for old, new in zip(before, run(), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("width", [1, 2, 36, 192])
def test_orthogonal_without_large_values(width):
    matrix = orthogonal(width)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(width), atol=1e-12)
    assert np.abs(matrix).max() <= np.sqrt(2 / width) + 1e-12


@pytest.mark.parametrize(
    "options", [{"axial": True}, {"pooling": "token_and_gap", "norm_after_pooling": True}], ids=["axial", "pooled"]
)
def test_models_that_are_not_rotated(options):
    copy = folded_copy(build(**options))
    rotate_tokens(copy)
    assert not hasattr(copy, "rotation")


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
