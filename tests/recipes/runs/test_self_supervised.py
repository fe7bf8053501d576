"""What masked patches and masked autoencoders have in common: batches, draws, gradients, files."""

import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel, draw_masking
from keras_vit.recipes.pretraining.masked_patch import MaskedPatchModel, draw_corruption, masked_patch_loss
from keras_vit.recipes.recipe import MaskedAutoencoder, MaskedPatch, Run
from keras_vit.recipes.runs.self_supervised import self_supervised_batches

PIXELS = np.random.default_rng(2).uniform(0, 255, (6, 16, 16, 3)).astype("float32")
PATCH = SimpleNamespace(
    model=MaskedPatchModel,
    recipe=MaskedPatch(run=Run(seed=3), target="downsampled_color"),
    draw=draw_corruption,
    loss=masked_patch_loss("downsampled_color"),
    options={"target": "downsampled_color"},
    shapes={"images": (6, 16, 16, 3), "corrupted": (6, 8), "source": (6, 16)},
    targets=(6, 8, 16),
)
AUTOENCODER = SimpleNamespace(
    model=MaskedAutoencoderModel,
    recipe=MaskedAutoencoder(run=Run(seed=3)),
    draw=draw_masking,
    loss=keras.losses.MeanSquaredError(),
    options={"decoder_depth": 2, "decoder_width": 8, "decoder_heads": 2, "normalize_targets": False},
    shapes={"images": (6, 16, 16, 3), "visible": (6, 4), "masked": (6, 12), "source": (6, 16)},
    targets=(6, 12, 48),
)


@pytest.fixture(params=[PATCH, AUTOENCODER], ids=["masked patch", "masked autoencoder"])
def kind(request):
    return request.param


def batches(kind, pixels=PIXELS, *options):
    dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(len(pixels)))).repeat()
    return self_supervised_batches(dataset, 4, kind.recipe, *options)


def first(dataset):
    inputs, targets = next(dataset.as_numpy_iterator())
    return {**inputs, "targets": targets}


def built(kind, vit, **options):
    """A model whose weights are all random."""
    model, random = kind.model(vit, **kind.options, **options), np.random.default_rng(8)
    for weight in model.weights:
        weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
    return model


def test_hosts_share_the_draws_of_the_global_batch(kind):
    whole = first(batches(kind, PIXELS, 5))
    parts = [first(batches(kind, PIXELS[2 * i :][:2], 5, (i, 3))) for i in range(3)]
    for name, value in whole.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), value)


def test_batches_depend_on_seed_and_step_only(kind):
    one, again, later = first(batches(kind)), first(batches(kind)), first(batches(kind, PIXELS, 1))
    second = next(batches(kind).skip(1).as_numpy_iterator())[0]
    for name, value in one.items():
        np.testing.assert_array_equal(again[name], value)
    np.testing.assert_array_equal(later["source"], second["source"])
    assert not np.array_equal(one["source"], second["source"])


def test_shapes_are_static(kind):
    inputs, targets = batches(kind).element_spec
    assert {name: tuple(spec.shape) for name, spec in inputs.items()} == kind.shapes
    assert targets.shape == kind.targets


@pytest.mark.parametrize("changes", [{}, {"register_tokens": 1, "pooling": "map"}], ids=["token", "map"])
def test_step_has_no_gather_or_scatter_and_a_gradient_for_every_weight(kind, trained_toy, changes):
    """Gathers and scatters are slow on a TPU. The layer of pooling "map" has weights, but is not called."""
    model = built(kind, trained_toy(num_classes=0, depth=1, **changes))
    inputs, targets = next(iter(batches(kind)))

    def step():
        with tf.GradientTape() as tape:
            loss = kind.loss(targets, model(inputs, training=True))
        return tape.gradient(loss, model.trainable_weights)

    graph = tf.function(step).get_concrete_function().graph
    assert not [operation.type for operation in graph.get_operations() if re.search("Gather|Scatter", operation.type)]
    for weight, gradient in zip(model.trainable_weights, step()):
        assert gradient is not None and np.abs(gradient).max() > 0, weight.path


def test_model_with_a_head_raises(kind, toy):
    with pytest.raises(ValueError, match=r"with_head\(0\)"):
        kind.model(toy())


def test_keras_file_round_trip(kind, trained_toy, tmp_path):
    model = built(kind, trained_toy(num_classes=0, dropout=0.1), name="mine")
    model.save(tmp_path / "model.keras")
    loaded, inputs = keras.saving.load_model(tmp_path / "model.keras"), next(iter(batches(kind)))[0]
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    assert loaded.get_config() == model.get_config() and loaded.name == "mine"


def test_predictions_are_float32_under_mixed_precision(kind, toy):
    model = built(kind, toy(dtype="mixed_bfloat16", num_classes=0))
    assert keras.backend.standardize_dtype(model(next(iter(batches(kind)))[0]).dtype) == "float32"
