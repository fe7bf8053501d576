"""Logs of a run: log.csv, TensorBoard's files and the ETA; also after a crash."""

import csv
import errno
import io
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.pretraining.masked_patch import MaskedPatchModel, masked_patch_batches, masked_patch_loss
from keras_vit.recipes.recipe import Data, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.runs.logs import CsvLog, Progress, ProgressBar
from keras_vit.recipes.runs.loop import training_callbacks
from keras_vit.recipes.runs.open_run import OpenRun
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.recipes.training.optimizers import build_optimizer

BATCH = 4


@pytest.fixture(scope="module")
def compiled():
    """A model of one weight that logs every second step. It is traced once, and then steps cost nothing."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    optimizer = build_optimizer(Optimizer(learning_rate=0.1, warmup_steps=2), total_steps=12)
    model.compile(optimizer, "mse", steps_per_execution=2, jit_compile=False)
    optimizer.build(model.trainable_variables)
    return model, [np.array(variable) for variable in (*model.variables, *optimizer.variables)]


@pytest.fixture
def regression(compiled):
    def restored(done=0):
        """The model after `done` steps."""
        model, initial = compiled
        for variable, value in zip((*model.variables, *model.optimizer.variables), initial):
            variable.assign(value)
        model.optimizer.iterations.assign(done)
        return model

    return restored


def batches():
    x = np.arange(8.0, dtype="float32")[:, None]
    return tf.data.Dataset.from_tensor_slices((x, 2 * x)).batch(BATCH).repeat()


def fit(model, callbacks, first, last, steps=4, verbose=0):
    options = {"steps_per_epoch": steps, "initial_epoch": first, "epochs": last, "callbacks": callbacks}
    return model.fit(batches(), **options, verbose=verbose, validation_data=batches().take(1), shuffle=False).history


def rows(file):
    with tf.io.gfile.GFile(str(file)) as content:
        return list(csv.DictReader(io.StringIO(content.read())))


def events(folder):
    """All (step, tag, value) of TensorBoard's files; images are decoded."""
    found = []
    for file in sorted(tf.io.gfile.glob(f"{folder}/events*")):
        for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                array = tf.make_ndarray(value.tensor)
                is_image = value.metadata.plugin_data.plugin_name == "images"
                array = [tf.io.decode_png(png).numpy() for png in array[2:]] if is_image else float(array)
                found.append((event.step, value.tag, array))
    return found


@pytest.fixture
def clock(monkeypatch):
    """A callback that alone advances the clock: 2 s per execution of two steps, 60 s for the first, which compiles."""
    now = [0.0]

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            now[0] += 2.0 if int(self.model.optimizer.iterations) else 60.0

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return Clock()


def test_logs_contain_speed_and_learning_rate(regression, clock):
    model, seen = regression(), []
    watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs))
    history = fit(model, [clock, Progress(BATCH, total_steps=12), watch], 0, 3)
    # Two steps of 4 images in 2 s; the first execution of the run compiles, so it does not count.
    assert history["images_per_second"] == [4.0, 4.0, 4.0]
    schedule = model.optimizer._learning_rate
    np.testing.assert_allclose(history["learning_rate"], [float(schedule(step)) for step in (4, 8, 12)])
    assert all("learning_rate" in logs for logs in seen) and len(seen) == 6


def test_eta_is_printed(regression, capsys, clock):
    fit(regression(), [clock, Progress(BATCH, total_steps=1000), ProgressBar()], 0, 3, verbose=2)
    printed = capsys.readouterr().out
    # One second per step.
    assert "Step 4/1,000, ETA 17 min (" in printed and "Step 8/1,000, ETA 17 min (" in printed
    assert printed.count("compiling") == 1 and "Epoch" not in printed and printed.count("4/4 - ") == 3
    # The first step takes a minute: it has a line of its own.
    assert (
        printed.count("2/4 - loss: ") == 1
        and printed.count("learning_rate") == 4
        and printed.count("images_per_second: 4.0") == 3
    )
    fit(regression(), [Progress(BATCH, total_steps=1000)], 0, 3, verbose=0)
    printed = capsys.readouterr().out
    assert "ETA" not in printed and "compiling" not in printed


@pytest.mark.parametrize("filesystem", ["disk", "ram"])
def test_csv_has_a_row_per_epoch(regression, tmp_path, filesystem):
    file = f"{tmp_path}/log.csv" if filesystem == "disk" else f"ram://{tmp_path.name}/log.csv"
    tf.io.gfile.makedirs(file.rpartition("/")[0])
    model = regression()
    history = fit(model, [Progress(BATCH, 12), CsvLog(file)], 0, 2)
    fit(model, [Progress(BATCH, 12), CsvLog(file)], 2, 3)
    table = rows(file)
    assert [(row["epoch"], row["step"]) for row in table] == [("1", "4"), ("2", "8"), ("3", "12")]
    assert {"loss", "val_loss", "learning_rate", "images_per_second"} < set(table[0])
    assert [float(row["val_loss"]) for row in table[:2]] == history["val_loss"]


def test_csv_row_is_written_before_the_evaluation(regression, tmp_path):
    """The checkpoint of the epoch's last step exists by then, so the epoch is not trained again."""
    file = tmp_path / "log.csv"
    stop = keras.callbacks.LambdaCallback(on_test_begin=lambda logs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fit(regression(), [CsvLog(file), stop], 0, 3)
    (row,) = rows(file)
    fit(regression(4), [CsvLog(file)], 1, 3)
    table = rows(file)
    assert [int(row["step"]) for row in table] == [4, 8, 12]
    assert table[0]["loss"] == row["loss"] and [bool(row["val_loss"]) for row in table] == [False, True, True]


# Last checkpoint before the interruption: none; in the second epoch; at its end; in the third.
@pytest.mark.parametrize("saved,expected", [(0, [4, 8, 12]), (6, [4, 8, 12]), (8, [4, 8, 12]), (10, [4, 8, 10, 12])])
def test_resumed_run_neither_repeats_nor_loses_rows(regression, tmp_path, saved, expected):
    file = tmp_path / "log.csv"
    fit(regression(), [CsvLog(file)], 0, 2)
    if saved > 8:  # terminated in the third epoch, which Keras then ends
        fit(regression(8), [CsvLog(file)], 2, 3, steps=2)
    epoch, within = divmod(saved, 4)
    model = regression(saved)
    if within:
        fit(model, [CsvLog(file)], epoch, epoch + 1, steps=4 - within)
        epoch += 1
    fit(model, [CsvLog(file)], epoch, 3)
    table = rows(file)
    assert [int(row["step"]) for row in table] == expected
    assert [int(row["epoch"]) for row in table] == [-(-step // 4) for step in expected]


def test_a_row_that_cannot_be_written_is_written_by_the_next_epoch(regression, tmp_path, monkeypatch, capsys):
    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    file, model, log = tmp_path / "run" / "log.csv", regression(), CsvLog(tmp_path / "run" / "log.csv")
    fit(model, [log], 0, 1)
    before = file.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        fit(model, [log], 1, 2)
    assert file.read_text() == before and "No space left on device" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "run")  # is created again
    log.on_epoch_end(1, {"loss": 1.0})
    assert [row["step"] for row in rows(file)] == ["4", "8"]
    file.write_text("name,age\n")
    with pytest.raises(ValueError, match="'step'"):
        fit(model, [CsvLog(file)], 1, 2)


@pytest.fixture
def masked_patch(data_dir, tmp_path):
    data = Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=16, crop="none", flip=False)
    run = Run(seed=1, folder=str(tmp_path), tensorboard=True, epoch_steps=2)
    return MaskedPatch(data=data, run=run, target="downsampled_color", total_steps=4)


def logging_callbacks(recipe, model, chief=True):
    """Those of `training_callbacks` that log, without the bar: EMA and nonfinite steps require our optimizers."""
    workers = SimpleNamespace(chief=chief, several=not chief)
    return training_callbacks(OpenRun(recipe, None, workers, RunData(recipe)), model)[3:-1]


def pretrained(recipe, toy, pixels):
    vit = toy(image_size=8, depth=1, num_classes=0, dropout=0.1, seed=1)  # patches of 4 x 4
    model = MaskedPatchModel(vit, recipe.target)
    model.set_weights([np.random.default_rng(0).normal(size=w.shape, scale=0.1) for w in model.weights])
    model.compile("sgd", masked_patch_loss(recipe.target), jit_compile=False)
    logs = logging_callbacks(recipe, model)
    data = masked_patch_batches(tf.data.Dataset.from_tensors((pixels, 0)).repeat(), vit.patch_size, recipe)
    model.fit(data, steps_per_epoch=2, epochs=2, callbacks=logs, shuffle=False, verbose=0)
    return model


@pytest.mark.slow
def test_tensorboard_reconstructions_do_not_change_training(masked_patch, toy, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3)).astype("float32")
    model = pretrained(masked_patch, toy, pixels)
    quiet = pretrained(replace(masked_patch, run=Run(seed=1)), toy, pixels)
    for one, other in zip(model.variables, quiet.variables):
        np.testing.assert_array_equal(one, other)
    found = events(tmp_path / "tensorboard" / "train")
    images = {step: value for step, tag, value in found if tag == "reconstructions"}
    assert set(images) == {2, 4} and len(images[4]) == 8 and images[4][0].shape == (8, 24, 3)
    scalars = {(step, tag): value for step, tag, value in found if tag != "reconstructions"}
    assert {tag for _, tag in scalars} == {"loss", "learning_rate", "images_per_second"}
    table = rows(tmp_path / "log.csv")
    np.testing.assert_allclose([scalars[2, "loss"], scalars[4, "loss"]], [float(r["loss"]) for r in table], rtol=1e-6)


@pytest.mark.slow
def test_tensorboard_shows_attention_of_classifiers(masked_patch, toy, trained_toy, tmp_path):
    recipe = Supervised(data=masked_patch.data, run=masked_patch.run, total_steps=2)
    model = trained_toy(image_size=8, patch_size=2)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    x, y = np.zeros((4, 8, 8, 3)), np.zeros(4)
    model.fit(x, y, validation_data=(x, y), callbacks=logging_callbacks(recipe, model), verbose=0)
    (image,) = [value for _, tag, value in events(tmp_path / "tensorboard" / "train") if tag == "attention"]
    assert len(image) == 8 and image[0].shape == (8, 16, 3) and image[0][:, :8].max() > 200
    assert [tag for _, tag, _ in events(tmp_path / "tensorboard" / "validation")] == ["loss"]
    axial = toy(image_size=8, patch_size=2, axial=True, pooling="gap")
    assert logging_callbacks(recipe, axial)[-1].draw_images is None
    unvalidated = replace(recipe, data=replace(recipe.data, validation_split=None))
    assert logging_callbacks(unvalidated, model)[-1].draw_images()[1].shape == (8, 8, 16, 3)


@pytest.mark.parametrize("folder,chief", [(None, True), ("run", False)])
def test_nothing_is_written_without_a_folder_or_by_other_workers(masked_patch, regression, folder, chief):
    recipe = replace(masked_patch, run=replace(masked_patch.run, folder=folder))
    (only,) = logging_callbacks(recipe, regression(), chief)
    assert isinstance(only, Progress)
