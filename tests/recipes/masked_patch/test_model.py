from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.masked_patch.masking import MASK
from keras_vit.recipes.masked_patch.model import MaskedPatchModel, masked_patch_batches, masked_patch_loss
from keras_vit.recipes.masked_patch.targets import TARGETS, patch_targets
from keras_vit.recipes.recipe import Data, MaskedPatch, Run

RECIPE = MaskedPatch(run=Run(seed=3))


@pytest.fixture
def pixels():
    return np.random.default_rng(2).uniform(0, 255, (6, 16, 16, 3)).astype("float32")


@pytest.fixture
def batches(pixels):
    dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(6))).repeat()
    return lambda target="mean_color": masked_patch_batches(dataset, 4, replace(RECIPE, target=target))


@pytest.mark.slow
def test_pixels_are_scaled_by_the_recipe(pixels):
    data = Data(mean=(0.5, 0.25, 0.0), std=(1.0, 0.5, 0.25))
    dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(6)))
    inputs, _ = next(masked_patch_batches(dataset, 4, replace(RECIPE, data=data)).as_numpy_iterator())
    expected = (pixels / 255 - np.array(data.mean)) / np.array(data.std)
    np.testing.assert_allclose(inputs["images"], expected, atol=1e-5)


def test_hosts_share_the_corruption_of_the_global_batch(pixels):
    def first_batch(pixels, host):
        dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(len(pixels))))
        return next(masked_patch_batches(dataset, 4, RECIPE, 5, host).as_numpy_iterator())

    (inputs, targets), parts = first_batch(pixels, (0, 1)), [first_batch(pixels[2 * i :][:2], (i, 3)) for i in range(3)]
    for name, value in inputs.items():
        np.testing.assert_array_equal(np.concatenate([part[0][name] for part in parts]), value)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), targets)


def test_corrupt_masks_replaces_or_keeps_embeddings(trained_toy):
    model = MaskedPatchModel(trained_toy(num_classes=0))
    embeddings = np.random.default_rng(0).standard_normal((2, 4, 12)).astype("float32")
    source = np.array([[MASK, 3, 2, 3], [1, 1, 2, MASK]], "int32")
    corrupted = np.asarray(model.corrupt(embeddings, source))
    np.testing.assert_array_equal(corrupted[0, 0], model.mask.numpy()[0, 0])
    np.testing.assert_array_equal(corrupted[0, 1], embeddings[0, 3])
    np.testing.assert_array_equal(corrupted[0, 2:], embeddings[0, 2:])
    np.testing.assert_array_equal(corrupted[1, 0], embeddings[1, 1])
    np.testing.assert_array_equal(corrupted[1, 3], model.mask.numpy()[0, 0])


@pytest.mark.parametrize("pooling", ["token", "gap"])
def test_predictions_use_the_output_tokens_of_corrupted_patches(trained_toy, batches, pooling):
    model = MaskedPatchModel(trained_toy(pooling=pooling, num_classes=0))
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    inputs, _ = next(iter(batches()))
    embeddings = model.corrupt(model.vit.embed(inputs["images"]), inputs["source"])
    tokens = np.asarray(model.vit.encode(embeddings))[:, -16:]  # without a class token, if there is one
    chosen = np.take_along_axis(tokens, inputs["corrupted"].numpy()[..., None], axis=1)
    expected = chosen @ model.head.kernel.numpy() + model.head.bias.numpy()
    np.testing.assert_allclose(model(inputs), expected, atol=1e-4)


def test_step_has_no_gather_or_scatter(trained_toy, batches):
    """They are slow on a TPU."""
    model = MaskedPatchModel(trained_toy(num_classes=0))
    inputs, targets = next(iter(batches()))

    def step():
        with tf.GradientTape() as tape:
            loss = masked_patch_loss("mean_color")(targets, model(inputs, training=True))
        return tape.gradient(loss, model.trainable_variables)

    kinds = {operation.type for operation in tf.function(step).get_concrete_function().graph.get_operations()}
    assert not [kind for kind in kinds if "Gather" in kind or "Scatter" in kind]


def test_masked_pixels_do_not_change_the_output(trained_toy, batches, pixels):
    """The targets do not leak."""
    model = MaskedPatchModel(trained_toy(num_classes=0))
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    inputs, _ = next(iter(batches()))
    # Patches whose embedding is used nowhere.
    hidden = np.array([[number not in row for number in range(16)] for row in inputs["source"].numpy()])
    assert hidden.sum() > 20
    cells = np.kron(hidden.reshape(6, 4, 4), np.ones((1, 4, 4), bool)).astype(bool)
    other = np.where(cells[..., None], -inputs["images"].numpy(), inputs["images"].numpy())
    assert not np.allclose(other, inputs["images"])
    np.testing.assert_allclose(model({**inputs, "images": other}), model(inputs), atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_targets_are_of_the_corrupted_patches_from_raw_pixels(batches, pixels, target):
    inputs, targets = next(iter(batches(target)))
    everything = patch_targets(pixels, 4, target).numpy()
    for row in range(6):
        np.testing.assert_array_equal(targets[row], everything[row][inputs["corrupted"][row]])
    np.testing.assert_allclose(inputs["images"], pixels / 127.5 - 1, atol=1e-6)


def test_batches_depend_on_seed_and_step_only(batches):
    first, again = [list(batches().take(2)) for _ in range(2)]
    for one, other in zip(first, again):
        np.testing.assert_array_equal(one[0]["corrupted"], other[0]["corrupted"])
        np.testing.assert_array_equal(one[1], other[1])
    assert not np.array_equal(first[0][0]["corrupted"], first[1][0]["corrupted"])


def test_shapes_are_static(batches):
    inputs, targets = batches("downsampled_color").element_spec
    shapes = {name: tuple(spec.shape) for name, spec in inputs.items()}
    assert shapes == {"images": (6, 16, 16, 3), "corrupted": (6, 8), "source": (6, 16)}
    assert targets.shape == (6, 8, 16)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mean_color", "pixels"])
def test_fit_reduces_the_loss(toy, batches, target):
    model = MaskedPatchModel(toy(num_classes=0), target)
    model.compile(keras.optimizers.Adam(3e-3), masked_patch_loss(target))
    losses = model.fit(batches(target), steps_per_epoch=20, epochs=3, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    if target == "mean_color":
        assert losses[0] < np.log(512) * 1.05  # the head starts at zeros, so at log 512


@pytest.mark.parametrize("pooling", ["token", "map"])
def test_every_weight_has_a_gradient(toy, batches, pooling):
    model = MaskedPatchModel(toy(num_classes=0, pooling=pooling))  # that of "map" has weights, but is not called
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    inputs, targets = next(iter(batches()))
    with tf.GradientTape() as tape:
        loss = masked_patch_loss("mean_color")(targets, model(inputs, training=True))
    for weight, gradient in zip(model.trainable_weights, tape.gradient(loss, model.trainable_weights)):
        assert gradient is not None and np.abs(gradient).max() > 0, weight.path


def test_model_with_a_head_raises(toy):
    with pytest.raises(ValueError, match=r"vit.with_head\(0\)"):
        MaskedPatchModel(toy())


def test_keras_file_round_trip(trained_toy, batches, tmp_path):
    model = MaskedPatchModel(trained_toy(dropout=0.1, num_classes=0), "pixels", name="mine")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    inputs, _ = next(iter(batches("pixels")))
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    assert loaded.get_config() == model.get_config() and loaded.name == "mine"


def test_predictions_are_float32_under_mixed_precision(toy, batches):
    model = MaskedPatchModel(toy(dtype="mixed_bfloat16", num_classes=0))
    inputs, _ = next(iter(batches()))
    assert keras.backend.standardize_dtype(model(inputs).dtype) == "float32"
