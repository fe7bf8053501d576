"""The summary at the start of a run, and the checks before it."""

from dataclasses import replace

import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

from keras_vit.recipes.checkpoints.run_folder import prepare_run_folder
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.distributed.strategy import choose_strategy
from keras_vit.recipes.recipe import Data, Distillation, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.training import summary
from keras_vit.recipes.training.checks import check_data, check_recipe
from keras_vit.recipes.training.summary import describe_run


@pytest.fixture
def recipe(data_dir, tmp_path):
    return Supervised(
        data=Data(dataset="digits", data_dir=data_dir, image_size=16, batch_size=32),
        optimizer=Optimizer(name="adamw", weight_decay=0.1, warmup_steps=10, accumulation_steps=2, ema_momentum=0.99),
        run=Run(folder=str(tmp_path / "run"), epoch_steps=30),
        total_steps=100,
    )


@pytest.mark.slow
def test_summary_of_a_run(recipe, toy, capsys):
    strategy, dataset = choose_strategy("mirrored"), open_dataset(recipe.data)
    check_recipe(recipe, strategy)
    check_data(recipe, dataset, 100)
    model = toy(num_classes=10)
    lines = dict(
        line.split(maxsplit=1) for line in describe_run(recipe, strategy, model, dataset, 100, 60).splitlines()
    )
    assert lines == {
        "devices": "2 CPU, MirroredStrategy, 2 replicas",
        "batch": "32 images, 16 per replica in 2 accumulation steps of 8",
        "length": "100 steps, 2.917 epochs; validation every 30 steps",
        "model": f"{model.name} of depth {model.config.depth} and width {model.config.width}, 4 x 4 patches of 4 x 4 "
        f"pixels, {model.count_params():,} parameters, all trainable",
        "data": "digits: 1,097 in train, 200 in validation, 500 in test; 10 classes; 16 x 16 pixels",
        "precision": "float32",
        "optimizer": "adamw, learning rate 0.001 after 10 warmup steps, cosine, weight decay 0.1, "
        "gradient norm clipped at 1, EMA 0.99",
        "folder": f"{recipe.run.folder}, resuming from step 60",
    }
    resumed = replace(recipe, run=replace(recipe.run, resume=True))
    assert "from step 0: there is no checkpoint" in describe_run(resumed, strategy, model, dataset, 100)


@pytest.mark.parametrize("flags,remark", [("avx512f amx_bf16", ""), ("avx512f", "; this CPU has no bfloat16 products")])
def test_summary_names_slow_bfloat16(recipe, toy, tmp_path, monkeypatch, flags, remark):
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags}\n")
    monkeypatch.setattr(summary, "CPU_INFO", tmp_path / "cpuinfo")
    recipe = replace(recipe, run=replace(recipe.run, precision="mixed_bfloat16"))
    text = describe_run(recipe, tf.distribute.get_strategy(), toy(num_classes=10), open_dataset(recipe.data), 100)
    assert f"\nprecision  mixed_bfloat16{remark}" in text and bool(remark) == ("is faster" in text)


def test_summary_of_other_runs(recipe, toy):
    one = tf.distribute.get_strategy()
    data, dataset = replace(recipe.data, labels_per_class=4), open_dataset(recipe.data)
    model = toy(num_classes=10)
    model.freeze_encoder()
    optimizer = Optimizer(name="sgd", decay="constant", global_clipnorm=None)
    fields = {"data": data, "optimizer": optimizer, "total_steps": 10}
    text = describe_run(Distillation(**fields, teacher="teacher.keras"), one, model, dataset, 10)
    assert "1 CPU, no strategy" in text and "digits: 40 in train" in text
    assert f"parameters, {sum(w.shape.num_elements() for w in map(_tensor, model.trainable_weights))} train" in text
    assert "sgd, learning rate 0.001, constant\n" in text and "teacher.keras, hard, 0.5 of the loss" in text
    assert "none, outputs are not saved" in text and "accumulation" not in text
    text = describe_run(MaskedPatch(**fields), one, model, dataset, 10)
    finished = describe_run(MaskedPatch(**fields, run=Run(folder="runs/x")), one, model, dataset, 10, 10)
    assert "runs/x, already finished: all 10 steps are trained, so none are trained now" in finished
    assert "digits: 40 in train; 16 x 16" in text and "logs every 1,000 steps" in text


def _tensor(weight):
    return tf.convert_to_tensor(weight)


@pytest.mark.parametrize(
    "part,changes,message",
    [
        ("data", {"batch_size": 30}, "data.batch_size=30 is not divisible by 2 replicas times 2 .* Use 28 or 32"),
        ("optimizer", {"warmup_steps": 100}, "Received: optimizer.warmup_steps=100 for a run of 100 steps"),
        ("run", {"folder": None, "tensorboard": True}, "requires a folder: set run.folder"),
        ("run", {"epoch_steps": 125, "steps_per_execution": 50}, "not a multiple of .*=50, .* Use run.epoch_steps=100"),
        ("data", {"labels_per_class": 0}, "data.labels_per_class must be at least 1. Received: 0"),
    ],
)
def test_invalid_fields_raise(recipe, part, changes, message):
    with pytest.raises(ValueError, match=message):
        check_recipe(replace(recipe, **{part: replace(getattr(recipe, part), **changes)}), choose_strategy("mirrored"))


def test_remote_tpu_cannot_use_a_local_folder(recipe, tmp_path, monkeypatch):
    strategy = simulated_tpu()
    monkeypatch.setenv("TPU_NAME", "my-pod")
    with pytest.raises(
        ValueError, match="machines of the TPU 'my-pod' cannot write .* run.folder='gs://BUCKET/FOLDER'"
    ):
        check_recipe(recipe, strategy)
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("TPU_NAME", "local")
    check_recipe(recipe, strategy)


def test_length_is_set_once(recipe):
    for changes in ({"total_epochs": 3.0}, {"total_steps": None}):
        with pytest.raises(ValueError, match="either total_steps or total_epochs"):
            check_recipe(replace(recipe, **changes), tf.distribute.get_strategy())
    by_epochs = replace(recipe, total_steps=None, total_epochs=0.2)
    check_recipe(by_epochs, tf.distribute.get_strategy())
    with pytest.raises(ValueError, match="optimizer.warmup_steps=10 for a run of 6 steps"):
        check_data(by_epochs, open_dataset(recipe.data), 6)


def test_unwritable_folder_raises(recipe, tmp_path):
    (tmp_path / "file").write_text("")
    blocked = replace(recipe, run=Run(folder=str(tmp_path / "file" / "run")))
    with pytest.raises(OSError, match="file/run cannot be used: .*choose another folder"):
        prepare_run_folder(blocked)
    prepare_run_folder(recipe)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["recipe.json"]  # no trial file remains


def test_splits_must_have_labels(recipe):
    dataset = open_dataset(recipe.data)

    def read(split):
        unknown = dataset.read(split).map(lambda name, image, label: (name, image, -tf.ones_like(label)))
        return unknown if split == "test" else dataset.read(split)

    unpublished = replace(dataset, read=read)
    with pytest.raises(ValueError, match="images of 'test' of .* have no labels"):
        check_data(recipe, unpublished, 200)
    check_data(MaskedPatch(data=recipe.data), unpublished, 20_000)


def test_splits_must_exist_and_have_enough_images(recipe):
    dataset = open_dataset(recipe.data)
    with pytest.raises(ValueError, match="data.batch_size=32 is more than the 30 training images"):
        check_data(replace(recipe, data=replace(recipe.data, labels_per_class=3)), dataset, 100)
    with pytest.raises(ValueError, match=r"has one class, 'cat': any model is right. Add other classes."):
        check_data(recipe, replace(dataset, class_names=("cat",)), 100)
    too_many = replace(recipe.data, labels_per_class=1_000)
    with pytest.raises(ValueError, match=r"labels_per_class=1000 is more than 'train.*' has: 1,\d+ images of 10 cl"):
        check_data(replace(recipe, data=too_many), dataset, 100)
    with pytest.raises(ValueError, match="No split 'dev'"):
        check_data(replace(recipe, data=replace(recipe.data, validation_split="dev")), dataset, 100)
    with pytest.raises(ValueError, match=r"'validation\[:0\]' of digits has no images"):
        check_data(replace(recipe, data=replace(recipe.data, validation_split="validation[:0]")), dataset, 100)
    with pytest.raises(ValueError, match=r"'train\[:0\]' of digits has no images"):
        check_data(replace(recipe, data=replace(recipe.data, train_split="train[:0]")), dataset, 100)
