"""Masked autoencoders: masks, targets, the model against transformers, reconstructions."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from goldens import golden_file, golden_io, golden_weights, write_arrays

import keras_vit
from keras_vit.recipes.pretraining.masked_autoencoder import (
    MaskedAutoencoderModel,
    draw_masking,
    masked_autoencoder_batches,
    masking_of,
    pixel_targets,
)
from keras_vit.recipes.pretraining.patches import MASK
from keras_vit.recipes.pretraining.reconstruction import reconstruct_masked
from keras_vit.recipes.recipe import Data, MaskedAutoencoder, Run

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("float32")


@pytest.mark.parametrize("patches,fraction,count", [(16, 0.75, 12), (196, 0.75, 147), (4, 0.01, 1), (4, 0.99, 3)])
def test_masked_fraction_is_exact_and_source_the_position_among_the_visible(patches, fraction, count):
    drawn = draw_masking((0, 0), 8, patches, fraction)
    assert drawn.visible.shape == (8, patches - count) and drawn.masked.shape == (8, count)
    for visible, masked, source in zip(*(part.numpy() for part in drawn)):
        assert sorted([*visible, *masked]) == list(range(patches))
        np.testing.assert_array_equal(source[visible], np.arange(patches - count))
        assert (source[masked] == MASK).all()


def test_patches_are_chosen_uniformly_by_the_largest_noise():
    masked = draw_masking((3, 0), 4000, 8, 0.5).masked.numpy()
    np.testing.assert_allclose(np.bincount(masked.ravel(), minlength=8) / 4000, 0.5, atol=0.04)
    drawn = masking_of(tf.constant([[0.9, 0.1, 0.5, 0.3]]), 0.5)
    assert [part.numpy().tolist() for part in drawn] == [[[1, 3]], [[2, 0]], [[MASK, 0, MASK, 1]]]


@pytest.mark.parametrize("normalized", [True, False])
def test_targets_are_the_masked_patches_of_the_normalized_image(normalized):
    data = Data(mean=(0.5, 0.25, 0.0), std=(1.0, 0.5, 0.25))
    recipe = MaskedAutoencoder(data=data, run=Run(seed=3), normalize_targets=normalized)
    dataset = tf.data.Dataset.from_tensors((PIXELS, np.zeros(3)))
    inputs, targets = next(masked_autoencoder_batches(dataset, 4, recipe).as_numpy_iterator())
    images = (PIXELS / 255 - np.array(data.mean)) / np.array(data.std)
    np.testing.assert_allclose(inputs["images"], images, atol=1e-5)
    for image, masked, target in zip(images, inputs["masked"], targets):
        patches = [image[4 * (i // 4) :, 4 * (i % 4) :][:4, :4].reshape(-1) for i in range(16)]
        expected = np.stack(patches)[masked]
        if normalized:
            mean, variance = expected.mean(axis=1, keepdims=True), expected.var(axis=1, ddof=1, keepdims=True)
            expected = (expected - mean) / np.sqrt(variance + 1e-6)
        np.testing.assert_allclose(target, expected, atol=1e-4)


def test_patch_of_one_color_has_targets_of_zero():
    assert not np.any(pixel_targets(np.full((1, 4, 4, 3), 0.3), 2, True))


@pytest.fixture
def model(trained_toy):
    return MaskedAutoencoderModel(trained_toy(num_classes=0, depth=1), 1, 8, 2)


def test_visible_patches_show_the_image(model):
    drawn = reconstruct_masked(model, PIXELS, MaskedAutoencoder(masked_fraction=0.5), seed=1)
    cells = np.zeros((3, 16), bool)
    np.put_along_axis(cells, draw_masking((1, 0), 3, 16, 0.5).masked.numpy(), True, axis=1)
    np.testing.assert_array_equal(drawn.masked, np.kron(cells.reshape(3, 4, 4), np.ones((1, 4, 4), bool)))
    for array in (drawn.inputs, drawn.targets):
        np.testing.assert_array_equal(array, PIXELS)
    np.testing.assert_array_equal(drawn.predicted[~drawn.masked], PIXELS[~drawn.masked])
    assert (drawn.predicted[drawn.masked] != PIXELS[drawn.masked]).any() and drawn.predicted.dtype == "uint8"


def test_predictions_are_scaled_back_to_pixels(model):
    """Predictions of zero are, normalized, the mean of the true patch; predictions of one, one deviation above it."""
    gray, recipe = np.repeat(PIXELS[..., :1], 3, axis=-1), MaskedAutoencoder()
    model.head.kernel.assign(np.zeros(model.head.kernel.shape))
    model.head.bias.assign(np.zeros(model.head.bias.shape))
    # One mean over the channels too: with the same scale for all of them, it is the mean of the pixels.
    drawn = reconstruct_masked(
        model, gray, replace(recipe, data=replace(recipe.data, mean=(0.5,) * 3, std=(0.25,) * 3))
    )
    means = gray.reshape(3, 4, 4, 4, 4, 3).mean(axis=(2, 4, 5), keepdims=True)
    expected = np.broadcast_to(means, (3, 4, 4, 4, 4, 3)).reshape(3, 16, 16, 3)
    assert np.abs(drawn.predicted[drawn.masked] - expected[drawn.masked]).max() <= 0.51
    model.head.bias.assign(np.ones(model.head.bias.shape))
    drawn = reconstruct_masked(model, PIXELS, MaskedAutoencoder(normalize_targets=False))
    expected = np.round(255 * np.array([0.485 + 0.229, 0.456 + 0.224, 0.406 + 0.225]))
    np.testing.assert_array_equal(drawn.predicted[drawn.masked], np.broadcast_to(expected, (3 * 12 * 16, 3)))


DECODER = {"decoder_depth": 1, "decoder_width": 8, "decoder_heads": 2}


@pytest.fixture
def build(trained_toy):
    """A model whose weights are all random."""

    def build(**changes):
        model = MaskedAutoencoderModel(trained_toy(num_classes=0, **{"depth": 1, **changes}), **DECODER)
        random = np.random.default_rng(8)
        for weight in model.weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        return model

    return build


@pytest.fixture
def batch():
    """Inputs and targets of six images."""
    pixels = np.random.default_rng(2).uniform(0, 255, (6, 16, 16, 3)).astype("float32")
    dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(6)))
    return next(iter(masked_autoencoder_batches(dataset, 4, MaskedAutoencoder(run=Run(seed=3)))))


def golden_model(folder):
    """The golden masked autoencoder of transformers, with its weights."""
    arrays = golden_weights("hf_vit_mae")
    model = MaskedAutoencoderModel(keras_vit.load(golden_file(folder, "hf_vit_mae"), num_heads=3), 2, 16, 2)
    # Blocks of a decoder have the names of an encoder's: they are loaded as the encoder of another model.
    blocks = {
        name.replace("decoder.decoder_norm", "vit.layernorm").replace("decoder.decoder_", "vit."): array
        for name, array in arrays.items()
        if name.startswith(("decoder.decoder_layers.", "decoder.decoder_norm."))
    }
    embeddings = {name: x[..., :16] if x.ndim == 3 else x[:16] for name, x in arrays.items() if ".embeddings." in name}
    file = write_arrays(folder / "decoder.safetensors", {**embeddings, **blocks})
    model.decoder.set_weights(keras_vit.load(file, num_heads=2).encoder.get_weights())
    model.mask.assign(arrays["decoder.mask_token"])
    for layer, name in ((model.decoder_embedding, "embed"), (model.head, "pred")):
        layer.set_weights([arrays[f"decoder.decoder_{name}.weight"].T, arrays[f"decoder.decoder_{name}.bias"]])
    return model


def test_predictions_and_losses_equal_those_of_transformers(tmp_path):
    io, model = golden_io("hf_vit_mae"), golden_model(tmp_path)
    masking = masking_of(tf.constant(io["noise"]), 0.75)
    np.testing.assert_array_equal(masking.source.numpy() == MASK, io["mask"] == 1)
    predictions = model({"images": io["images"], **masking._asdict()})
    masked = masking.masked.numpy()
    expected = np.take_along_axis(io["predictions"], masked[..., None], axis=1)
    np.testing.assert_allclose(predictions, expected, atol=1e-4)
    for normalized, name in ((False, "loss"), (True, "loss_of_normalized_targets")):
        targets = np.take_along_axis(pixel_targets(io["images"], 8, normalized).numpy(), masked[..., None], axis=1)
        np.testing.assert_allclose(keras.losses.MeanSquaredError()(targets, predictions), io[name], rtol=1e-4)


def test_encoder_sees_visible_patches_and_prefix_tokens_only(build, batch):
    model, (inputs, _) = build(register_tokens=2), batch
    visible = inputs["visible"].numpy()
    encoded = model.encode(inputs["images"], inputs["visible"])
    assert encoded.shape == (6, 3 + 4, 12)  # class token and registers
    hidden = np.ones((6, 16), bool)
    np.put_along_axis(hidden, visible, False, axis=1)
    cells = np.kron(hidden.reshape(6, 4, 4), np.ones((1, 4, 4), bool)).astype(bool)
    other = np.where(cells[..., None], -inputs["images"].numpy(), inputs["images"].numpy())
    np.testing.assert_allclose(model.encode(other, inputs["visible"]), encoded, atol=1e-5)
    np.testing.assert_allclose(model({**inputs, "images": other}), model(inputs), atol=1e-5)
    seen = np.where(~cells[..., None], -inputs["images"].numpy(), inputs["images"].numpy())
    assert not np.allclose(model.encode(seen, inputs["visible"]), encoded, atol=1e-2)


@pytest.mark.parametrize(
    "changes,found",
    [
        ({"axial": True, "pooling": "gap"}, "axial=True"),
        ({"position_embedding": "relative"}, "position_embedding='relative'"),
        ({"position_embedding": "rotary"}, "rotary positions in"),
        ({"position_placement": "shared"}, "position_placement='shared'"),
        ({"resnet_stages": ()}, r"resnet_stages=\(\)"),
        ({"norm_after_pooling": True}, "norm_after_pooling=True"),
    ],
)
def test_models_that_require_all_patches_are_not_supported(toy, changes, found):
    with pytest.raises(ValueError, match=found):
        MaskedAutoencoderModel(toy(num_classes=0, **changes), **DECODER)
