"""Folders of runs: unusable ones, those of another recipe, and what makes a resumed run the same run."""

import json
from dataclasses import replace

import keras
import pytest
import tensorflow as tf
from checkpointed_training import build, fit

from keras_vit.recipes.data.image_dataset import ImageDataset
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Architecture, Augment, Data, MaskedPatch, Run, Supervised
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.runs.checkpoints import Checkpoints
from keras_vit.recipes.runs.folder import (
    begin_run,
    check_same_run,
    check_unchanged,
    list_folder,
    prepare_run_folder,
    read_identity,
)
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.recipes.training.optimizers import Adam
from keras_vit.weights.files import are_of_run

WORKERS = Workers(tf.distribute.get_strategy())
DATA = ImageDataset("animals", ("ant", "bee", "cat"), {"train": 90, "test": 30}, lambda split: None)


@pytest.mark.parametrize("folder", ["nowhere://bucket/run", "{}/file/run"])
def test_unusable_folder_raises(tmp_path, folder):
    (tmp_path / "file").write_text("")
    folder = folder.format(tmp_path)
    with pytest.raises(OSError, match=folder):
        prepare_run_folder(MaskedPatch(run=Run(folder=folder)))
    with pytest.raises(OSError, match=folder):
        fit(build(), Checkpoints(folder))


@pytest.fixture
def begun(tmp_path):
    """A recipe that resumes in tmp_path."""
    recipe = Supervised(run=Run(folder=str(tmp_path)))
    prepare_run_folder(recipe)
    (tmp_path / "step-1.index").touch()
    with pytest.raises(RecipeError) as raised:
        prepare_run_folder(recipe)
    assert {"run.resume": True} in raised.value.use
    # Devices, folders and intervals may change.
    run = replace(recipe.run, resume=True, strategy="mirrored", checkpoint_steps=7, tensorboard=True)
    prepare_run_folder(replace(recipe, run=run, data=replace(recipe.data, data_dir="/elsewhere")))
    return replace(recipe, run=run)


@pytest.mark.parametrize(
    "section,changes,name,before",
    [
        ("optimizer", {"learning_rate": 1.0}, "optimizer.learning_rate", 0.03),
        ("run", {"seed": 1}, "run.seed", 0),
        ("data", {"cache": True}, "data.cache", False),  # keeps the order of the files
        ("data", {"augment": Augment(erasing=0.5)}, "data.augment.erasing", 0.0),
        ("architecture", {"variant": "L/16"}, "architecture.variant", "B/16"),
    ],
)
def test_what_is_computed_may_not_change(begun, section, changes, name, before):
    with pytest.raises(RecipeError) as raised:
        prepare_run_folder(replace(begun, **{section: replace(getattr(begun, section), **changes)}))
    assert list(raised.value.received) == [name] and raised.value.use[0] == {name: before}


def test_the_kind_of_a_recipe_may_not_change(begun):
    with pytest.raises(RecipeError, match="Supervised, .* MaskedPatch"):
        prepare_run_folder(MaskedPatch(run=begun.run))


def test_another_model_may_start_from_the_weights_of_a_finished_run(begun, tmp_path):
    (tmp_path / "model.keras").touch()
    with pytest.raises(RecipeError) as raised:
        prepare_run_folder(replace(begun, architecture=Architecture("L/16")))
    start = {"run.folder": f"{tmp_path}-2", "weights": f"{tmp_path}/model.keras", "keep_head": True}
    assert raised.value.use[-1] == start


def test_weights_determine_the_model(tmp_path):
    run = Run(folder=str(tmp_path), resume=True)
    recipe = Supervised(weights="B_16.npz", architecture=Architecture("L/16"), run=run)
    prepare_run_folder(recipe)
    (tmp_path / "step-1.index").touch()
    prepare_run_folder(replace(recipe, architecture=Architecture()))


def begin(folder, dataset=DATA, workers=WORKERS, kind=Supervised):
    return begin_run_of(str(folder), run_data(dataset, kind), workers)


def begin_run_of(folder, data, workers=WORKERS):
    began = check_same_run(folder, are_of_run(list_folder(folder)), data, {}, workers)
    return begin_run(folder, data, {}, workers, began)


def run_data(dataset=DATA, kind=Supervised):
    return RunData(kind(data=Data(validation_split=None)), dataset)


def save(folder, step=1):
    """Begins or resumes a run and saves a checkpoint of it; returns its identity and the object that saves."""
    folder.mkdir(exist_ok=True)
    identity = begin(folder)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(Adam(0.1), "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    checkpoints = Checkpoints(folder, identity=identity)
    checkpoints.restore(model)
    checkpoints.set_model(model)
    model.optimizer.iterations.assign(step)
    checkpoints._save()
    return identity, checkpoints


def test_resumed_run_keeps_its_id(tmp_path):
    first, _ = save(tmp_path)
    assert first.class_names == DATA.class_names and first.images == {"train": 90, "test": 30}
    assert json.loads((tmp_path / "run.json").read_text())["id"] == first.id
    again, _ = save(tmp_path, 2)
    assert again.id == first.id and again.process != first.process
    assert save(tmp_path / "other")[0].id != first.id
    worker = Workers(tf.distribute.get_strategy())
    worker.chief = False
    assert begin(tmp_path, workers=worker).id == first.id


@pytest.mark.parametrize("content", [None, b"", bytes(100), b"{", b"{}", b"\xff"])
def test_damaged_run_json_is_restored_from_the_newest_checkpoint(tmp_path, content):
    """As after a power failure, which may leave a file that was just renamed without its content."""
    first, _ = save(tmp_path)
    (tmp_path / "run.json").unlink() if content is None else (tmp_path / "run.json").write_bytes(content)
    assert begin(tmp_path).id == first.id
    assert read_identity(tmp_path).id == first.id


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"class_names": ("ant", "cat", "bee")}, "order differs: class 1 is 'bee' there, but 'cat' here"),
        ({"class_names": ("ant", "bee")}, "3 classes there, 2 here; missing here: 'cat'"),
        ({"splits": {"train": 91, "test": 30}}, r"'train' \(90 there, 91 here\)"),
    ],
)
def test_other_data_raises(tmp_path, changes, message):
    save(tmp_path)
    changed = replace(DATA, **changes)
    check_unchanged(tmp_path, run_data())
    with pytest.raises(ValueError, match=message):
        check_unchanged(tmp_path, run_data(changed))
    with pytest.raises(ValueError, match=f"{tmp_path}.*{message}"):
        begin(tmp_path, changed)
    (tmp_path / "run.json").unlink()  # the checkpoint knows it too
    with pytest.raises(ValueError, match=message):
        begin(tmp_path, changed)


def test_other_files_of_as_many_images_raise(tmp_path):
    """The parts that were trained on would change, and accuracies with them."""
    for i, path in enumerate(("train/a/1.jpg", "train/b/2.jpg", "test/a/3.jpg", "test/b/4.jpg")):
        (file := tmp_path / "images" / path).parent.mkdir(parents=True)
        file.write_bytes(i * b"x")
    data = Data(f"folder:{tmp_path / 'images'}", train_split="train", validation_split=None, test_split="test")
    recipe, folder = Supervised(data=data), str(tmp_path)
    began = begin_run_of(folder, RunData(recipe))
    (tmp_path / "step-1.index").touch()
    assert began.files == begin_run_of(folder, RunData(recipe)).files != ""
    check_unchanged(folder, RunData(recipe))
    train = tmp_path / "images" / "train"
    (train / "a/1.jpg").rename(train / "b/1.jpg")
    (train / "b/2.jpg").rename(train / "a/2.jpg")  # swapped
    with pytest.raises(ValueError, match="the files"):
        check_unchanged(folder, RunData(recipe))
    with pytest.raises(ValueError, match="the files"):
        begin_run_of(folder, RunData(recipe))
    for values in (began.__dict__ | {"files": ""}, {k: v for k, v in began.__dict__.items() if k != "files"}):
        (tmp_path / "run.json").write_text(json.dumps(values))  # a run that did not record them
        check_unchanged(folder, RunData(recipe))


def test_classes_do_not_matter_without_labels(tmp_path):
    identity = begin(tmp_path, kind=MaskedPatch)
    assert identity.class_names == () and identity.images == {"train": 90}


def test_checkpoint_of_another_run_raises(tmp_path):
    """As if two runs had shared a folder, or a checkpoint had been copied."""
    save(tmp_path / "one", 5)
    other, _ = save(tmp_path / "two", 3)
    for file in (tmp_path / "one").glob("step-5.*"):
        (tmp_path / "two" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match=f"step-5 .*{other.id}"):
        save(tmp_path / "two", 6)


def test_process_that_was_replaced_does_not_save(tmp_path):
    """A lock cannot prevent two processes on gs://: the older one ends at its next checkpoint."""
    _, older = save(tmp_path)
    _, newer = save(tmp_path, 2)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    older.model.optimizer.iterations.assign(7)
    with pytest.raises(OSError, match="Another process"):
        older._save()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    newer.model.optimizer.iterations.assign(8)
    newer._save()
    assert newer.saved_step == 8
