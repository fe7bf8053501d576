"""What a run has before its model is built: devices, folder, data; and what is refused there."""

from dataclasses import replace

import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

from keras_vit.recipes import train
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.processes.strategies import choose_strategy
from keras_vit.recipes.recipe import Augment, Data, MaskedPatch, Run, Supervised
from keras_vit.recipes.recipe.errors import RecipeError, SeveralErrors
from keras_vit.recipes.runs import supervised
from keras_vit.recipes.runs.folder import begin_run, read_identity
from keras_vit.recipes.runs.open_run import check_devices, open_run
from keras_vit.recipes.runs.run_data import RunData

COPIES = Augment(mixup_alpha=0.8, repeats=9)  # with 32 images on two replicas, too few different ones to mix


def test_an_open_run_has_its_numbers_and_locks_its_folder(recipe):
    by_epochs = replace(recipe, total_steps=None, total_epochs=3.0)
    with open_run(by_epochs) as run:
        assert run.data.images == {"train": 1097, "validation": 200, "test": 500}
        assert run.data.total_steps == 103 and run.data.class_counts("test").sum() == 500
        assert len(run.data.class_names) == 10 and not run.workers.several
        with pytest.raises(OSError, match="run"), open_run(by_epochs):
            pytest.fail("opened twice")
    with open_run(by_epochs) as again:
        assert again.data.files == run.data.files


class Built(Exception):
    """A model was built."""


def test_a_run_of_other_data_or_loss_is_refused_before_a_model_is_built(tmp_path, monkeypatch):
    def build(*_):
        raise Built

    monkeypatch.setattr(supervised, "compile_classifier", build)
    for path in ("train/a/1.jpg", "train/b/2.jpg", "test/a/3.jpg", "test/b/4.jpg"):
        (file := tmp_path / "images" / path).parent.mkdir(parents=True)
        file.touch()
    data = Data(f"folder:{tmp_path / 'images'}", validation_split=None, batch_size=2)
    run = Run(folder=str(tmp_path / "run"), resume=True)
    recipe = Supervised(data=data, run=run)
    with open_run(recipe) as opened:
        assert opened.began is None
        identity = begin_run(run.folder, opened.data, {}, opened.workers, opened.began)
    (tmp_path / "run/step-1.index").touch()
    with open_run(recipe) as opened:
        assert opened.began == identity
    with pytest.raises(Built):
        train(recipe)
    with pytest.raises(ValueError, match=r"another loss: that of the recipe \(there\), mse \(here\)"):
        train(recipe, loss="mse")
    (tmp_path / "images/train/a/5.jpg").touch()
    with pytest.raises(ValueError, match=r"'train' \(2 there, 3 here\)"):
        train(recipe)
    assert read_identity(run.folder) == identity


def test_all_that_the_data_excludes_is_said_together(recipe):
    data = replace(recipe.data, batch_size=2048, validation_split="dev")
    wrong = replace(recipe, data=data, optimizer=replace(recipe.optimizer, accumulation_steps=1))
    with pytest.raises(SeveralErrors) as raised, open_run(wrong):
        pytest.fail("opened")
    received = [error.received for error in raised.value.errors]
    assert received == [{"data.batch_size": 2048}, {"data.validation_split": "dev"}]


@pytest.mark.parametrize(
    "part,changes,received",
    [
        ("data", {"batch_size": 30}, {"data.batch_size": 30, "optimizer.accumulation_steps": 2}),
        ("data", {"augment": COPIES}, {"data.batch_size": 32, "data.augment.repeats": 9}),
        ("run", {"folder": None, "tensorboard": True}, {"run.tensorboard": True, "run.folder": None}),
    ],
)
def test_recipes_that_the_devices_exclude(recipe, part, changes, received, logical_cpus):
    logical_cpus(2)
    strategy = choose_strategy("mirrored")
    with pytest.raises(RecipeError) as raised:
        check_devices(replace(recipe, **{part: replace(getattr(recipe, part), **changes)}), strategy)
    assert raised.value.received == received
    check_devices(replace(recipe, data=replace(recipe.data, augment=replace(COPIES, repeats=8))), strategy)


def test_remote_tpu_cannot_use_a_local_folder(recipe, tmp_path, monkeypatch):
    strategy = simulated_tpu()
    monkeypatch.setenv("TPU_NAME", "my-pod")
    with pytest.raises(RecipeError, match="'my-pod'") as raised:
        check_devices(recipe, strategy)
    assert raised.value.received == {"run.folder": recipe.run.folder}
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("TPU_NAME", "local")
    check_devices(recipe, strategy)


def test_epochs_must_be_longer_than_the_warmup(recipe):
    by_epochs = replace(recipe, total_steps=None, total_epochs=0.2)
    with pytest.raises(RecipeError, match="7 steps") as raised:
        RunData(by_epochs).check()
    assert raised.value.received == {"optimizer.warmup_steps": 10}


def test_splits_must_have_labels(recipe):
    dataset = open_dataset(recipe.data)

    def read(split):
        unknown = dataset.read(split).map(lambda name, image, label: (name, image, -tf.ones_like(label)))
        return unknown if split == "test" else dataset.read(split)

    unpublished = replace(dataset, read=read)
    with pytest.raises(ValueError, match="'test'"):
        RunData(recipe, unpublished).check()
    RunData(MaskedPatch(data=recipe.data), unpublished).check()


@pytest.mark.parametrize(
    "fields,received,use",
    [
        ({"labels_per_class": 3}, {"data.batch_size": 32}, {"data.batch_size": 30}),
        ({"labels_per_class": 1_000}, {"data.labels_per_class": 1_000}, {"data.labels_per_class": 109}),
        ({"validation_split": "dev"}, {"data.validation_split": "dev"}, {"data.validation_split": None}),
        ({"validation_split": "test[:0]"}, {"data.validation_split": "test[:0]"}, {"data.validation_split": None}),
        ({"train_split": "train[:0]"}, {"data.train_split": "train[:0]"}, {"data.train_split": "train"}),
    ],
)
def test_splits_must_exist_and_have_enough_images(recipe, fields, received, use):
    with pytest.raises(RecipeError) as raised:
        RunData(replace(recipe, data=replace(recipe.data, **fields))).check()
    assert raised.value.received == received and use in raised.value.use
