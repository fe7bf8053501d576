from dataclasses import fields, replace

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.recipes import fit
from keras_vit.recipes.data import evaluation_batches, open_dataset
from keras_vit.recipes.recipe import (
    Architecture,
    Data,
    Distillation,
    MaskedAutoencoder,
    MaskedPatch,
    Optimizer,
    Run,
    Supervised,
)
from keras_vit.recipes.training.model import build_model

pytestmark = pytest.mark.slow


@pytest.fixture
def data(data_dir):
    return Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=16, crop="none", flip=False)


@pytest.fixture
def pretraining(data):
    return MaskedPatch(
        architecture=Architecture("Ti/2", depth=1, width=12, mlp_dim=24, num_heads=3, dropout=0.1),
        data=data,
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=5),
        run=Run(seed=1, steps_per_execution=10),
        total_steps=60,
    )


@pytest.fixture
def autoencoding(pretraining):
    decoder = {"decoder_depth": 1, "decoder_width": 8, "decoder_heads": 2}
    fields = {name: getattr(pretraining, name) for name in ("architecture", "data", "optimizer", "run", "total_steps")}
    return MaskedAutoencoder(**fields, **decoder)


@pytest.fixture
def finetuning(data):
    return Supervised(
        data=replace(data, image_size=12),
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=5),
        run=Run(seed=1, steps_per_execution=5),
        total_steps=30,
    )


def test_pretrain_then_fine_tune_at_a_higher_resolution(pretraining, finetuning, tmp_path, capsys):
    masked, history = fit.pretrain(pretraining)
    assert history["loss"][-1] < 5.5 and masked.vit.grid == (4, 4)
    assert masked.optimizer.iterations.numpy() == 60
    run = Run(seed=1, steps_per_execution=5, epoch_steps=45)
    finetuning = replace(finetuning, optimizer=Optimizer(learning_rate=0.01, warmup_steps=5), run=run, total_steps=90)
    model, history = fit.train(finetuning, masked.vit)
    assert model.grid == (6, 6) and model.num_classes == 10 and model.optimizer.iterations.numpy() == 90
    assert {"top1", "val_top1", "loss"} <= set(history)
    assert history["loss"][-1] < history["loss"][0] - 0.1
    assert fit.evaluate(model, finetuning.data, "test")["top1"] > 0.2  # chance is 0.1
    assert "60/60" in capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "")
    # Keras saves and loads the model with its optimizer.
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.iterations.numpy() == 90
    assert loaded.evaluate(_test_batches(finetuning.data), verbose=0) == pytest.approx(
        model.evaluate(_test_batches(finetuning.data), verbose=0), abs=1e-6
    )


def test_fine_tuning_starts_from_the_pretrained_weights(pretraining, finetuning):
    vit = build_model(pretraining.architecture, pretraining.data, pretraining.run)
    still = replace(finetuning, optimizer=Optimizer(name="sgd", learning_rate=0.0), total_steps=5)
    model, _ = fit.train(still, vit)
    np.testing.assert_array_equal(model.encoder.blocks[0].mlp.hidden.kernel, vit.encoder.blocks[0].mlp.hidden.kernel)
    np.testing.assert_array_equal(model.positions.table, vit.resized(12).positions.table)
    assert not np.any(model.head.kernel)


def test_the_same_recipe_gives_the_same_weights(pretraining):
    optimizer, run = Optimizer(learning_rate=3e-3, warmup_steps=1), replace(pretraining.run, steps_per_execution=1)
    short = replace(pretraining, optimizer=optimizer, run=run, total_steps=2)
    first, again, other = (
        fit.pretrain(recipe)[0].get_weights() for recipe in (short, short, replace(short, run=Run(seed=2)))
    )
    for one, same in zip(first, again):
        np.testing.assert_allclose(one, same, atol=1e-6)
    assert any(not np.allclose(one, different) for one, different in zip(first, other))


def test_two_replicas_equal_one(pretraining, finetuning):
    architecture = replace(pretraining.architecture, dropout=0.0)
    optimizer = Optimizer(name="sgd", learning_rate=0.1, warmup_steps=2, global_clipnorm=0.2)
    results = []
    for strategy in ("one-device", "mirrored"):
        run = Run(strategy=strategy, seed=1, steps_per_execution=5)
        recipe = replace(finetuning, architecture=architecture, optimizer=optimizer, run=run, total_steps=10)
        model, _ = fit.train(recipe)
        top1 = model.evaluate(_test_batches(finetuning.data), verbose=0, return_dict=True)["top1"]
        results.append((model.get_weights(), top1))
    (one, top1_one), (two, top1_two) = results
    for first, second in zip(one, two):
        np.testing.assert_allclose(first, second, atol=1e-5)
    assert top1_one == pytest.approx(top1_two, abs=1e-6)


def test_autoencoder_learns(autoencoding):
    model, history = fit.pretrain(replace(autoencoding, run=Run(seed=1, steps_per_execution=10, epoch_steps=20)))
    assert history["loss"][-1] < history["loss"][0] - 0.05 and "top1" not in history
    assert isinstance(model.vit, VisionTransformer) and model.vit.head is None


def test_two_replicas_of_an_autoencoder_equal_one(autoencoding):
    architecture, optimizer = replace(autoencoding.architecture, dropout=0.0), Optimizer("sgd", 0.1, warmup_steps=1)
    results = []
    for strategy in ("one-device", "mirrored"):
        run = Run(strategy=strategy, seed=1)
        recipe = replace(autoencoding, architecture=architecture, optimizer=optimizer, run=run, total_steps=3)
        results.append(fit.pretrain(recipe)[0].get_weights())
    for first, second in zip(*results):
        np.testing.assert_allclose(first, second, atol=1e-5)


def _test_batches(data):
    return evaluation_batches(data, open_dataset(data), "test")


def test_invalid_image_size_raises_before_data_is_opened(pretraining, finetuning, monkeypatch):
    monkeypatch.setattr(fit, "open_dataset", lambda data: pytest.fail("data was opened first"))
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        fit.pretrain(replace(pretraining, data=replace(pretraining.data, image_size=9)))
    vit = build_model(pretraining.architecture, pretraining.data, pretraining.run)
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        fit.train(replace(finetuning, data=replace(finetuning.data, image_size=13)), vit)


def test_total_steps_not_divisible_by_epoch_steps_nor_steps_per_execution(pretraining):
    run = replace(pretraining.run, epoch_steps=10, steps_per_execution=5)
    model, history = fit.pretrain(replace(pretraining, run=run, total_steps=27))
    assert len(history["loss"]) == 3 and model.optimizer.iterations == 27  # 10 + 10 + 7 steps


def test_callback_can_stop_a_run(pretraining):
    class Enough(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1

    run = replace(pretraining.run, epoch_steps=2, steps_per_execution=2)
    model, history = fit.pretrain(replace(pretraining, run=run, total_steps=9), [Enough()])
    assert len(history["loss"]) == 2 and model.optimizer.iterations == 4


@pytest.fixture
def short(finetuning):
    """Two steps, from scratch."""
    architecture = Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3)
    data = replace(finetuning.data, image_size=8, train_split="train[:32]", validation_split=None)
    run = Run(seed=1, steps_per_execution=1)
    return Supervised(architecture, data=data, optimizer=Optimizer("sgd", 0.01, warmup_steps=1), run=run, total_steps=2)


def test_total_epochs(short):
    model, _ = fit.train(replace(short, total_steps=None, total_epochs=1.0))
    assert model.optimizer.iterations == 2  # of 16 images


def test_training_starts_from_the_weights_of_the_recipe(short, trained_toy, tmp_path):
    weights = trained_toy(image_size=8, depth=1)
    weights.save(tmp_path / "model.keras")
    still = replace(short.optimizer, learning_rate=0.0)
    model, _ = fit.train(replace(short, weights=str(tmp_path / "model.keras"), optimizer=still))
    np.testing.assert_array_equal(model.encoder.blocks[0].mlp.out.kernel, weights.encoder.blocks[0].mlp.out.kernel)
    assert model.num_classes == 10 and model.optimizer.iterations == 2


def test_distillation(short, trained_toy, tmp_path):
    trained_toy(image_size=8, depth=1, num_classes=10).save(tmp_path / "teacher.keras")
    recipe = Distillation(**{field.name: getattr(short, field.name) for field in fields(short)})
    recipe = replace(recipe, teacher=str(tmp_path / "teacher.keras"))
    student, history = fit.train(recipe)
    assert student.config.distillation and np.isfinite(history["loss"]).all()
    assert 0 <= fit.evaluate(student, recipe.data, "test[:20]")["top1"] <= 1
