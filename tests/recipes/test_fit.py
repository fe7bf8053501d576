from dataclasses import replace

import keras
import numpy as np
import pytest

from keras_vit.recipes import fit
from keras_vit.recipes.build import build_model
from keras_vit.recipes.recipe import Architecture, Data, MaskedPatch, Optimizer, Run, Supervised


@pytest.fixture
def data(data_dir):
    return Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=16, crop="none", flip=False)


@pytest.fixture
def pretraining(data):
    return MaskedPatch(
        architecture=Architecture("Ti/2", depth=2, width=12, mlp_dim=24, num_heads=3, dropout=0.1),
        data=data,
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=5),
        run=Run(seed=1, steps_per_execution=10),
        total_steps=60,
    )


@pytest.fixture
def finetuning(data):
    return Supervised(
        data=replace(data, image_size=12),
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=5),
        run=Run(seed=1, steps_per_execution=5),
        total_steps=30,
    )


def test_pretrain_then_finetune_at_a_higher_resolution(pretraining, finetuning, capsys):
    masked, history = fit.pretrain(pretraining)
    assert history["loss"][-1] < 5.5 and masked.vit.grid == (4, 4)
    assert masked.optimizer.iterations.numpy() == 60
    model, history = fit.train(finetuning, masked.vit)
    assert model.grid == (6, 6) and model.num_classes == 10 and model.optimizer.iterations.numpy() == 30
    assert {"accuracy", "val_accuracy", "loss"} <= set(history)
    assert 0.05 < fit.evaluate(model, finetuning.data, "test")["accuracy"] <= 1
    assert "60/60" in capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "")


def test_finetuning_starts_from_the_pretrained_weights(pretraining, finetuning):
    vit = build_model(pretraining.architecture, pretraining.data, pretraining.run)
    still = replace(finetuning, optimizer=Optimizer(name="sgd", learning_rate=0.0), total_steps=5)
    model, _ = fit.train(still, vit)
    np.testing.assert_array_equal(model.encoder.blocks[0].mlp.hidden.kernel, vit.encoder.blocks[0].mlp.hidden.kernel)
    np.testing.assert_array_equal(model.positions.table, vit.resized(12).positions.table)
    assert not np.any(model.head.kernel)


def test_the_same_recipe_gives_the_same_weights(pretraining):
    short = replace(pretraining, total_steps=10)
    first, again, other = (
        fit.pretrain(recipe)[0].get_weights() for recipe in (short, short, replace(short, run=Run(seed=2)))
    )
    for one, same in zip(first, again):
        np.testing.assert_allclose(one, same, atol=1e-6)
    assert any(not np.allclose(one, different) for one, different in zip(first, other))


def test_two_replicas_pretrain_and_finetune_as_one(pretraining, finetuning):
    architecture = replace(pretraining.architecture, dropout=0.0)
    optimizer = Optimizer(name="sgd", learning_rate=0.1, warmup_steps=2, global_clipnorm=0.2)
    results = []
    for strategy in ("one-device", "mirrored"):
        run = Run(strategy=strategy, seed=1, steps_per_execution=5)
        recipe = replace(pretraining, architecture=architecture, optimizer=optimizer, run=run, total_steps=10)
        masked, _ = fit.pretrain(recipe)
        model, _ = fit.train(replace(finetuning, optimizer=optimizer, run=run, total_steps=10), masked.vit)
        accuracy = model.evaluate(_test_batches(finetuning.data), verbose=0, return_dict=True)["accuracy"]
        results.append((masked.get_weights() + model.get_weights(), accuracy))
    (one, accuracy_one), (two, accuracy_two) = results
    for first, second in zip(one, two):
        np.testing.assert_allclose(first, second, atol=1e-5)
    assert accuracy_one == pytest.approx(accuracy_two, abs=1e-6)


def _test_batches(data):
    return fit.evaluation_batches(data, fit.open_dataset(data), "test")


def test_mixed_precision_trains(pretraining):
    run = Run(precision="mixed_bfloat16", steps_per_execution=10)
    masked, history = fit.pretrain(replace(pretraining, run=run, total_steps=20))
    assert masked.vit.compute_dtype == "bfloat16" and np.isfinite(history["loss"][-1])
    assert {weight.dtype for weight in masked.weights} == {"float32"}


def test_bad_sizes_are_refused_before_data_is_read(pretraining, finetuning, monkeypatch):
    monkeypatch.setattr(fit, "open_dataset", lambda data: pytest.fail("data was opened first"))
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        fit.pretrain(replace(pretraining, data=replace(pretraining.data, image_size=9)))
    vit = build_model(pretraining.architecture, pretraining.data, pretraining.run)
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        fit.train(replace(finetuning, data=replace(finetuning.data, image_size=13)), vit)


@pytest.mark.parametrize("total,points", [(10, 1), (20, 2), (25, 3)])
def test_an_epoch_has_the_steps_that_the_recipe_says(pretraining, total, points):
    run = replace(pretraining.run, epoch_steps=10, steps_per_execution=5)
    model, history = fit.pretrain(replace(pretraining, run=run, total_steps=total))
    assert len(history["loss"]) == points and model.optimizer.iterations == total


def test_the_trained_model_is_an_ordinary_keras_model(finetuning, pretraining, tmp_path):
    vit = build_model(pretraining.architecture, pretraining.data, pretraining.run)
    model, _ = fit.train(replace(finetuning, total_steps=10), vit)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.iterations.numpy() == 10
    assert loaded.evaluate(_test_batches(finetuning.data), verbose=0) == pytest.approx(
        model.evaluate(_test_batches(finetuning.data), verbose=0), abs=1e-6
    )
