"""Training and evaluation of the models of recipes."""

import dataclasses
import gc
import os
import signal
from dataclasses import replace

import keras
import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight
from tensorflow.python.framework import ops

import keras_vit
from keras_vit.recipes import fit, run
from keras_vit.recipes.data import open_dataset, read_labels, training_batches
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.recipe import Distillation, Optimizer
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.runs import run_data
from keras_vit.recipes.runs.logs import LOG, read_log
from keras_vit.recipes.runs.supervised import compile_classifier
from keras_vit.recipes.training.model import build_model

STILL = Optimizer("sgd", learning_rate=0.0, warmup_steps=1)


@pytest.mark.slow
def test_total_steps_are_divisible_neither_by_those_of_an_epoch_nor_of_an_execution(masked):
    run = replace(masked.run, epoch_steps=20, steps_per_execution=10)
    model, history = fit.pretrain(replace(masked, run=run, total_steps=57))
    assert len(history["loss"]) == 3 and history["loss"][-1] < 5.5
    assert model.vit.grid == (4, 4) and model.optimizer.iterations == 57


@pytest.mark.slow
def test_fine_tuning_starts_from_a_model_and_from_the_weights_of_the_recipe(masked, supervised, trained_toy, tmp_path):
    vit = build_model(masked.architecture, masked.data, masked.run)
    recipe = replace(supervised, data=replace(supervised.data, image_size=12), optimizer=STILL)
    model, _ = fit.train(recipe, vit)
    np.testing.assert_array_equal(model.encoder.blocks[0].mlp.hidden.kernel, vit.encoder.blocks[0].mlp.hidden.kernel)
    np.testing.assert_array_equal(model.positions.table, vit.resized(12).positions.table)
    assert not np.any(model.head.kernel)
    weights = trained_toy(image_size=8, depth=1)
    weights.save(tmp_path / "model.keras")
    data = replace(supervised.data, train_split="train[:32]")  # two steps an epoch
    recipe = replace(supervised, weights=str(tmp_path / "model.keras"), data=data, optimizer=STILL)
    model, _ = fit.train(replace(recipe, total_steps=None, total_epochs=1.0))
    np.testing.assert_array_equal(model.encoder.blocks[0].mlp.out.kernel, weights.encoder.blocks[0].mlp.out.kernel)
    assert model.num_classes == 10 and model.optimizer.iterations == 2
    model.save(tmp_path / "trained.keras")  # with its optimizer
    assert keras.saving.load_model(tmp_path / "trained.keras").optimizer.iterations == 2


@pytest.mark.extended
def test_two_replicas_equal_one_device(supervised, logical_cpus):
    """Weights after a training with active clipping; and metrics, image for image."""
    logical_cpus(2)
    optimizer = Optimizer(name="sgd", learning_rate=0.1, warmup_steps=2, global_clipnorm=0.2)

    def trained(strategy):
        run = replace(supervised.run, strategy=strategy)
        return fit.train(replace(supervised, optimizer=optimizer, run=run, total_steps=5))[0]

    one, two = trained("one-device"), trained("mirrored")
    assert two.distribute_strategy.num_replicas_in_sync == 2
    for first, second in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)
    one.set_weights(two.get_weights())
    expected, found = (fit.evaluate(model, supervised.data, "test") for model in (one, two))
    assert found["images"] == 500 and found == pytest.approx(expected, rel=1e-5)
    assert [round(500 * metrics["top1"], 3) for metrics in (expected, found)] == [round(500 * expected["top1"])] * 2
    dataset = open_dataset(supervised.data)
    expected, found = (evaluate_classifier(model, dataset, "test[:70]", batch_size=32) for model in (one, two))
    assert found.summary == pytest.approx(expected.summary, rel=1e-5) and found.per_class == expected.per_class
    assert found.summary["images"] == 70


@pytest.mark.extended
def test_two_replicas_of_an_autoencoder_equal_one_device(autoencoder, logical_cpus):
    logical_cpus(2)
    architecture, optimizer = replace(autoencoder.architecture, dropout=0.0), Optimizer("sgd", 0.1, warmup_steps=1)
    recipe = replace(autoencoder, architecture=architecture, optimizer=optimizer, total_steps=3)
    one, two = (
        fit.pretrain(replace(recipe, run=replace(recipe.run, strategy=name))) for name in ("one-device", "mirrored")
    )
    for first, second in zip(one[0].get_weights(), two[0].get_weights(), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)
    assert one[0].vit.head is None and "top1" not in one[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["supervised", *(pytest.param(kind, marks=pytest.mark.extended) for kind in ("autoencoder", "distillation"))],
)
def test_nothing_of_a_run_is_alive_after_it(request, trained_toy, tmp_path, kind):
    recipe = request.getfixturevalue("supervised" if kind == "distillation" else kind)
    fields = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    if kind == "distillation":
        trained_toy(depth=1, image_size=8, num_classes=10).save(tmp_path / "teacher.keras")
        recipe = Distillation(**fields, teacher=str(tmp_path / "teacher.keras"))

    def alive():
        for _ in range(2):
            gc.collect()
        kinds = (keras.Model, keras.optimizers.Optimizer)
        return {id(thing) for thing in gc.get_objects() if isinstance(thing, kinds)}, len(
            ops.gradient_registry._registry
        )

    before = alive()
    run(recipe)
    assert alive() == before


def test_invalid_image_size_raises_before_data_is_opened(masked, supervised, monkeypatch):
    monkeypatch.setattr(run_data, "open_dataset", lambda data: pytest.fail("data was opened first"))
    with pytest.raises(RecipeError, match="data.image_size=9"):
        fit.pretrain(replace(masked, data=replace(masked.data, image_size=9)))
    vit = build_model(masked.architecture, masked.data, masked.run)
    with pytest.raises(RecipeError, match="data.image_size=13"):
        fit.train(replace(supervised, data=replace(supervised.data, image_size=13)), vit)


def test_class_names_are_checked_before_the_training(supervised, monkeypatch):
    names = ("two\nlines", *"123456789")
    monkeypatch.setattr(run_data, "open_dataset", lambda data: replace(open_dataset(data), class_names=names))
    monkeypatch.setattr(fit.loop, "fit", lambda *_: pytest.fail("trained first"))
    with pytest.raises(ValueError, match=r"Received: .two.*lines"):
        fit.train(supervised)


@pytest.mark.slow
@pytest.mark.parametrize("ema_momentum", [pytest.param(None, marks=pytest.mark.extended), 0.5])
def test_callbacks_restore_and_save_the_weights_that_were_measured(supervised, tmp_path, ema_momentum):
    """With the loss to be large, the first epoch is the best one."""
    data = replace(supervised.data, validation_split="validation")
    optimizer = Optimizer("adam", 0.01, warmup_steps=1, ema_momentum=ema_momentum)
    run = replace(supervised.run, epoch_steps=3, folder=str(tmp_path / "run"))
    recipe = replace(supervised, data=data, optimizer=optimizer, run=run, total_steps=9)
    best = {"monitor": "val_loss", "mode": "max"}
    callbacks = [
        keras.callbacks.EarlyStopping(**best, patience=9, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"), **best, save_best_only=True),
    ]
    model, history = fit.train(recipe, callbacks=callbacks)
    losses = history["val_loss"]
    assert losses[0] > 1.01 * losses[-1] and max(losses) == losses[0]
    assert fit.evaluate(model, data, "validation")["loss"] == pytest.approx(losses[0], rel=1e-5)
    saved = keras_vit.load(tmp_path / "best.keras")
    assert saved.class_names == tuple("0123456789")
    model.set_weights(saved.get_weights())
    assert fit.evaluate(model, data, "validation")["loss"] == pytest.approx(losses[0], rel=1e-5)


def at_epoch(numbers, function):
    """A callback that calls a function when the validation of these epochs begins, after their checkpoint."""

    class Callback(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_test_begin(self, logs=None):
            if self.epoch in numbers:
                function()

    return Callback()


class Epochs(keras.callbacks.Callback):
    """Keeps the measured weights of each epoch, and how often the training begins and ends."""

    def __init__(self):
        super().__init__()
        self.weights, self.losses, self.calls = [], [], []

    def on_train_begin(self, logs=None):
        self.calls.append("begin")

    def on_train_end(self, logs=None):
        self.calls.append("end")

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(self.model.get_weights())
        self.losses.append(logs["val_loss"])


def validated(supervised, total_steps=14, **run):
    """A recipe whose third validation is the best; the last epoch is shorter than the others."""
    data = replace(supervised.data, train_split="train[:48]", validation_split="validation[:60]")
    optimizer = Optimizer("adam", 0.02, warmup_steps=1, decay="constant", ema_momentum=0.5)
    run = replace(supervised.run, epoch_steps=3, checkpoint_steps=3, **run)
    return replace(supervised, data=data, optimizer=optimizer, run=run, total_steps=total_steps)


def assert_weights(model, expected):
    for ours, theirs in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.extended
def test_result_has_the_weights_of_the_best_validation(supervised):
    epochs = Epochs()
    model, history = fit.train(validated(supervised, restore_best_weights=True), callbacks=[epochs])
    best = int(np.argmin(epochs.losses))
    assert 0 < best < 4 and len(epochs.losses) == 5 and history["val_loss"] == epochs.losses
    assert epochs.calls == ["begin", "end"]  # of two calls of `fit`
    assert_weights(model, epochs.weights[best])


@pytest.mark.extended
@pytest.mark.parametrize("strategy,kills", [("one-device", (0, 2, 4)), ("mirrored", (2,))])
def test_interrupted_runs_stop_early_and_restore_the_same_weights(supervised, tmp_path, logical_cpus, strategy, kills):
    logical_cpus(2)
    chosen = {"restore_best_weights": True, "early_stopping_patience": 2, "strategy": strategy}
    epochs = Epochs()
    model, history = fit.train(validated(supervised, 20, **chosen), callbacks=[epochs])
    losses = history["val_loss"]
    best = int(np.argmin(losses))
    assert (best, len(losses), model.optimizer.iterations.numpy()) == (2, 5, 15)  # two validations are not better
    assert_weights(model, epochs.weights[best])
    recipe = validated(supervised, 20, **chosen, folder=str(tmp_path / "run"), resume=True)
    for epoch in kills:  # checkpoints are written before the validation

        def kill():
            raise MemoryError

        with pytest.raises(MemoryError):
            fit.train(recipe, callbacks=[at_epoch([epoch], kill)])
    again, _ = fit.train(recipe)
    assert again.optimizer.iterations.numpy() == 15
    assert_weights(again, model.get_weights())
    with pytest.raises(RecipeError, match="monitor"):
        fit.train(replace(recipe, run=replace(recipe.run, monitor="top1")))


@pytest.mark.slow
@pytest.mark.parametrize("epoch,epoch_steps,steps", [(0, 2, [3, 4, 6]), (1, 4, [3, 6])])
def test_an_interrupted_validation_is_made_up_for(epoch, epoch_steps, steps, supervised, tmp_path):
    def recipe(name, epoch_steps=3):
        run = {"folder": str(tmp_path / name), "resume": True, "restore_best_weights": True}
        made = validated(supervised, 6, **run)
        return replace(made, run=replace(made.run, epoch_steps=epoch_steps))

    def rows(name):
        return {int(row["step"]): row.get("val_loss") for row in read_log(str(tmp_path / name / LOG))}

    fit.train(recipe("whole"))
    with pytest.raises(SystemExit):
        fit.train(recipe("interrupted"), callbacks=[at_epoch([epoch], lambda: os.kill(os.getpid(), signal.SIGTERM))])
    assert not rows("interrupted")[3 * epoch + 3]
    model, _ = fit.train(recipe("interrupted", epoch_steps))
    whole, resumed = rows("whole"), rows("interrupted")
    assert list(resumed) == steps and all(resumed.values())
    assert [resumed[step] for step in whole] == list(whole.values())
    best = min(resumed, key=lambda step: float(resumed[step]))
    assert fit.evaluate(model, recipe("whole").data, "validation[:60]")["loss"] == pytest.approx(float(resumed[best]))


@pytest.mark.extended
def test_early_stopping_of_keras_spans_all_calls_of_fit(supervised):
    """The last epoch is shorter, a call of its own, after which the best weights may be of an earlier one."""
    epochs = Epochs()
    stop = keras.callbacks.EarlyStopping("val_loss", mode="min", patience=9, restore_best_weights=True)
    model, _ = fit.train(validated(supervised), callbacks=[epochs, stop])
    best = int(np.argmin(epochs.losses))
    assert best < 4 and len(epochs.losses) == 5 and stop.best_epoch == best
    assert_weights(model, epochs.weights[best])


@pytest.mark.extended
@pytest.mark.parametrize("mixup_alpha", [0.0, 0.2])
def test_class_weights_equal_those_of_keras(supervised, mixup_alpha):
    augment = replace(supervised.data.augment, mixup_alpha=mixup_alpha)
    data = replace(supervised.data, train_split="train[:40]", augment=augment)
    recipe = replace(supervised, data=data, class_weight="balanced", total_steps=3)
    model, _ = fit.train(recipe)
    dataset = open_dataset(data)
    labels = read_labels(dataset, "train[:40]")
    weights = compute_class_weight("balanced", classes=np.arange(10), y=labels)
    assert weights.max() > 1.5 * weights.min()
    keras.utils.set_random_seed(recipe.run.seed)
    expected, _ = compile_classifier(recipe, 10, 3)
    if not mixup_alpha:
        batches = training_batches(data, dataset, recipe.run.seed)
        expected.fit(batches, steps_per_epoch=3, class_weight=dict(enumerate(weights)), shuffle=False, verbose=0)
    else:  # Keras takes the largest label
        for images, mixed in training_batches(data, dataset, recipe.run.seed).take(3).as_numpy_iterator():
            expected.train_on_batch(images, mixed, mixed @ weights)
    for ours, theirs in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


class OwnTestStep(keras_vit.VisionTransformer):
    """Evaluates something else."""

    def test_step(self, data):
        return {"found": keras.ops.convert_to_tensor(1.0)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "vectors", "not compiled", "own test_step"])
def test_models_of_any_compile_are_evaluated(kind, supervised, trained_toy):
    """As `evaluate_classifier`, whose metrics are of scikit-learn's tests."""
    model = trained_toy(image_size=8, num_classes=10)
    if kind == "own test_step":
        model = OwnTestStep.from_config(model.get_config())
    if kind != "not compiled":
        losses = {"vectors": keras.losses.CategoricalCrossentropy(from_logits=True)}
        sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", losses.get(kind, sparse), metrics=["accuracy"])
    optimizer, split = getattr(model, "optimizer", None), "test[:70]"  # of which the last batch is padded
    metrics = fit.evaluate(model, supervised.data, split)
    expected = evaluate_classifier(model, open_dataset(supervised.data), split).summary
    assert metrics["images"] == 70 and metrics["top1"] == pytest.approx(expected["top1"])
    assert metrics["loss"] == pytest.approx(expected["negative_log_likelihood"], rel=1e-4)
    assert getattr(model, "optimizer", None) is optimizer


def test_models_that_cannot_be_evaluated(masked, supervised):
    pretrained, _ = fit.pretrain(replace(masked, total_steps=2))
    for model, reason in (
        (pretrained, "Expected a model of keras_vit"),
        (pretrained.vit, "has no head"),
        (keras.Sequential([keras.Input((8, 8, 3))]), "Expected a model of keras_vit"),
    ):
        with pytest.raises(ValueError, match=reason):
            fit.evaluate(model, supervised.data, "test")
