"""Training on a part of the patches: `patch_dropout` of a VisionTransformer."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from goldens import golden_file, golden_io

import keras_vit
from keras_vit.models.copying import copy_weights
from keras_vit.named_weights import named_weights
from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel
from keras_vit.recipes.pretraining.masked_patch import MaskedPatchModel

MODELS = {
    "map": {"pooling": "map", "representation_size": 6, "position_embedding": "sincos_2d"},
    "registers": {"register_tokens": 3, "prefix_positions": False, "layer_scale": 0.3, "qk_norm": True},
    "distillation": {"distillation": True, "position_embedding": "learned_2d"},
    "hybrid": {"resnet_stages": (1,), "image_size": 32, "patch_size": 8, "norm_after_pooling": True},
}


@pytest.fixture
def equal_toys(trained_toy):
    """Toys with the same weights, one for each dict of arguments."""

    def build(*changes):
        first, *others = models = [trained_toy(**one) for one in changes]
        for other in others:
            copy_weights(first, other)
        return models

    return build


def lengths_of_blocks(model, images, **options):
    """Number of tokens that each block receives."""
    seen = []

    def run(block, tokens):
        seen.append(tokens.shape[1])
        return block(tokens)

    model.apply_blocks(model.add_tokens(model.embed(images), **options), run)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_blocks_get_half_of_the_patches_in_training_only(equal_toys, images, name):
    model, whole = equal_toys(*({**MODELS[name], "patch_dropout": rate, "seed": 1} for rate in (0.5, 0.0)))
    images = np.resize(images, (3, *model.image_size, 3))
    prefix, patches = model.prefix_tokens, model.grid[0] * model.grid[1]
    again = type(model).from_config(model.get_config())
    again.set_weights(model.get_weights())
    assert lengths_of_blocks(again, images, training=True) == [prefix + patches // 2] * 2
    assert lengths_of_blocks(again, images) == [prefix + patches] * 2
    # The same weights, and outside training the same outputs.
    assert list(named_weights(model)) == list(named_weights(whole))
    np.testing.assert_array_equal(model(images), whole(images))
    outputs = [np.asarray(model(images, training=True)) for _ in range(2)]
    assert outputs[0].shape == model.compute_output_shape(images.shape)
    assert not np.allclose(outputs[0], outputs[1]) and not np.allclose(outputs[0], whole(images))
    np.testing.assert_array_equal(again(images, training=True), outputs[1])  # the second draw of the seed


def test_training_equals_timm(tmp_path, monkeypatch):
    io = golden_io("timm_patch_dropout")
    model = keras_vit.load(golden_file(tmp_path, "timm_patch_dropout"), num_heads=3, patch_dropout=0.4)
    with monkeypatch.context() as patch:
        patch.setattr(keras.random, "uniform", lambda shape, **options: tf.ensure_shape(io["noise"], shape))
        with tf.GradientTape() as tape:
            logits = model(io["images"], training=True)
            loss = tf.reduce_sum(tf.sin(logits))
    np.testing.assert_allclose(logits, io["logits"], atol=1e-5)
    gradient = tape.gradient(loss, model.positions.table.value)
    np.testing.assert_allclose(gradient, io["positions_gradient"], atol=1e-5)
    assert np.abs(np.asarray(model(io["images"], training=True)) - io["logits"]).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"pooling": "gap", "remat": "block", "dtype": "mixed_bfloat16"}], ids=str)
def test_xla_computes_the_same_without_gather_and_scatter(equal_toys, images, options, monkeypatch):
    # The same patches: XLA draws other random numbers.
    noise = tf.random.uniform((3, 16), seed=0)
    monkeypatch.setattr(keras.random, "uniform", lambda shape, **options: noise)

    def step(model, images):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(tf.cast(model(images, training=True), "float32")))
        return loss, tape.gradient(loss, [weight.value for weight in model.trainable_weights])

    results = []
    options = {**options, "patch_dropout": 0.5, "depth": 1}
    for jit, model in zip((False, True), equal_toys(options, options)):
        run = tf.function(partial(step, model), jit_compile=jit)
        if jit:
            program = run.experimental_get_compiler_ir(tf.constant(images))("hlo")
            assert " dot(" in program and " gather(" not in program and " scatter(" not in program
        results.append(run(tf.constant(images)))
    (loss, gradients), (loss_xla, gradients_xla) = results
    tolerance = 2e-2 if "dtype" in options else 1e-5
    np.testing.assert_allclose(loss, loss_xla, rtol=tolerance)
    for one, other in zip(gradients, gradients_xla):
        assert np.any(one)
        np.testing.assert_allclose(one, other, atol=tolerance * np.abs(one).max())


@pytest.mark.parametrize(
    "changes,received",
    [
        ({"axial": True}, "axial=True"),
        ({"position_embedding": "relative"}, "position_embedding='relative'"),
        ({"position_placement": "shared"}, "position_placement='shared'"),
        ({"pooling": "none"}, "pooling='none'"),
    ],
)
def test_arguments_that_require_all_patches(toy, changes, received):
    with pytest.raises(ValueError, match=f"{received}.* omit patch_dropout"):
        toy(patch_dropout=0.5, **changes)


def test_maps_and_masked_pre_training_require_all_patches(equal_toys, images, toy):
    model, whole = equal_toys({"patch_dropout": 0.5}, {})
    for options in ({}, {"training": True}):
        with pytest.raises(ValueError, match="patch_dropout=0.5.*training=False"):
            model.feature_maps(images, **options)
    for found, expected in zip(model.feature_maps(images, training=False), whole.feature_maps(images)):
        np.testing.assert_array_equal(found, expected)
    for kind in (MaskedPatchModel, MaskedAutoencoderModel):
        with pytest.raises(ValueError, match="Received: patch_dropout=0.5"):
            kind(toy(num_classes=0, patch_dropout=0.5, position_embedding="sincos_2d"))
