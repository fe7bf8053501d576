"""The summary at the start of a run, and the checks before it."""

from dataclasses import replace

import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.processes.strategies import choose_strategy
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Augment, Data, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.runs import summary
from keras_vit.recipes.runs.device_checks import check_devices
from keras_vit.recipes.runs.open_run import OpenRun
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.recipes.runs.summary import describe_run

COPIES = Augment(mixup_alpha=0.8, repeats=9)  # with 32 images on two replicas, too few different ones to mix


@pytest.fixture
def recipe(data_dir, tmp_path):
    return Supervised(
        data=Data(dataset="digits", data_dir=data_dir, image_size=16, batch_size=32),
        optimizer=Optimizer(name="adamw", weight_decay=0.1, warmup_steps=10, accumulation_steps=2, ema_momentum=0.99),
        run=Run(folder=str(tmp_path / "run"), epoch_steps=30),
        total_steps=100,
    )


def test_summary_of_a_run(recipe, toy, logical_cpus):
    logical_cpus(2)
    strategy, data, model = choose_strategy("mirrored"), RunData(recipe), toy(num_classes=10)
    check_devices(recipe, strategy)
    data.check()
    run = OpenRun(recipe, strategy, Workers(strategy), data)
    lines = describe_run(run, model, 60).splitlines()
    expected = {
        "devices": ("2 CPU", "2 replicas"),
        "batch": ("32 images, 16 per replica", "2 accumulation steps of 8"),
        "length": ("100 steps, 2.917 epochs", "every 30 steps"),
        "model": (f"depth {model.config.depth} and width {model.config.width}", f"{model.count_params():,} parameters"),
        "data": ("1,097 in train, 200 in validation, 500 in test", "10 classes", "16 x 16"),
        "precision": ("float32",),
        "optimizer": ("adamw", "0.001", "10 warmup", "cosine", "decay 0.1", "clipped at 1", "EMA 0.99"),
        "folder": (recipe.run.folder, "step 60"),
    }
    assert [line.split()[0] for line in lines] == list(expected)
    for line, parts in zip(lines, expected.values()):
        assert all(part in line for part in parts), line
    resumed = replace(recipe, run=replace(recipe.run, resume=True))
    assert "from step 0" in describe_run(replace(run, recipe=resumed), model)


@pytest.mark.parametrize("flags,slow", [("avx512f amx_bf16", False), ("avx512f", True)])
def test_summary_names_slow_bfloat16(recipe, toy, tmp_path, monkeypatch, flags, slow):
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags}\n")
    monkeypatch.setattr(summary, "CPU_INFO", tmp_path / "cpuinfo")
    recipe = replace(recipe, run=replace(recipe.run, precision="mixed_bfloat16"))
    strategy = tf.distribute.get_strategy()
    text = describe_run(OpenRun(recipe, strategy, Workers(strategy), RunData(recipe)), toy(num_classes=10))
    assert "mixed_bfloat16" in text and ("no bfloat16 products" in text) == slow


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
