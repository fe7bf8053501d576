"""What makes a resumed run the same run: its id, its classes in their order, its numbers of images."""

import json
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.checkpoints.checkpoints import Checkpoints
from keras_vit.recipes.checkpoints.run_identity import begin_run, check_unchanged, read_identity
from keras_vit.recipes.data.image_dataset import ImageDataset
from keras_vit.recipes.distributed.workers import Workers
from keras_vit.recipes.recipe import Data, MaskedPatch, Run, Supervised
from keras_vit.recipes.training.optimizers import Adam

WORKERS = Workers(tf.distribute.get_strategy())
DATA = ImageDataset("animals", ("ant", "bee", "cat"), {"train": 90, "test": 30}, lambda split: None)


def recipe_in(folder, kind=Supervised):
    return kind(data=Data(validation_split=None), run=Run(folder=str(folder), resume=True))


def build():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(Adam(0.1), "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def save(folder, step=1, data=DATA):
    """Begins or resumes a run and saves a checkpoint of it; returns its identity and the object that saves."""
    folder.mkdir(exist_ok=True)
    identity = begin_run(recipe_in(folder), data, WORKERS)
    checkpoints, model = Checkpoints(folder, identity=identity), build()
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


@pytest.mark.parametrize("content", [None, b"", bytes(100), b"{", b"{}", b"\xff"])
def test_damaged_run_json_is_restored_from_the_newest_checkpoint(tmp_path, content):
    """As after a power failure, which may leave a file that was just renamed without its content."""
    first, _ = save(tmp_path)
    (tmp_path / "run.json").unlink() if content is None else (tmp_path / "run.json").write_bytes(content)
    assert begin_run(recipe_in(tmp_path), DATA, WORKERS).id == first.id
    assert read_identity(tmp_path).id == first.id


@pytest.mark.parametrize(
    "changes,message",
    [
        (
            {"class_names": ("ant", "cat", "bee")},
            r"classes \(the order differs: class 1 is 'bee' there, but 'cat' here",
        ),
        ({"class_names": ("ant", "bee", "dog")}, "classes .missing here: 'cat'; new here: 'dog'"),
        ({"class_names": ("ant", "bee")}, "3 classes there, 2 here; missing here: 'cat'"),
        ({"splits": {"train": 91, "test": 30}}, r"the images of 'train' \(90 there, 91 here\)"),
        ({"splits": {"train": 90, "test": 29}}, r"the images of 'test' \(30 there, 29 here\)"),
    ],
)
def test_other_data_raises(tmp_path, changes, message):
    save(tmp_path)
    changed = replace(DATA, **changes)
    with pytest.raises(ValueError, match=f"not that of the run in {tmp_path}.*{message}.*Restore the data, or start"):
        begin_run(recipe_in(tmp_path), changed, WORKERS)
    with pytest.raises(ValueError, match=message):
        check_unchanged(recipe_in(tmp_path), changed)
    check_unchanged(recipe_in(tmp_path), DATA)
    (tmp_path / "run.json").unlink()  # the checkpoint knows it too
    with pytest.raises(ValueError, match=message):
        begin_run(recipe_in(tmp_path), changed, WORKERS)


def test_classes_do_not_matter_without_labels(tmp_path):
    identity = begin_run(recipe_in(tmp_path, MaskedPatch), DATA, WORKERS)
    assert identity.class_names == () and identity.images == {"train": 90}


def test_checkpoint_of_another_run_raises(tmp_path):
    """As if two runs had shared a folder, or a checkpoint had been copied."""
    save(tmp_path / "one", 5)
    other, _ = save(tmp_path / "two", 3)
    for file in (tmp_path / "one").glob("step-5.*"):
        (tmp_path / "two" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match=f"step-5 is of another run: its id is .*this folder is {other.id}. Move the"):
        save(tmp_path / "two", 6)


def test_process_that_was_replaced_does_not_save(tmp_path):
    """A lock cannot prevent two processes on gs://: the older one ends at its next checkpoint."""
    _, older = save(tmp_path)
    _, newer = save(tmp_path, 2)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    older.model.optimizer.iterations.assign(7)
    with pytest.raises(OSError, match="Another process has started a run in .*ends without saving. Train in one"):
        older._save()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    newer.model.optimizer.iterations.assign(8)
    newer._save()
    assert newer.saved_step == 8 and np.isfinite(newer.model.get_weights()[0]).all()


def test_worker_reads_the_id_that_the_chief_wrote(tmp_path):
    chief = begin_run(recipe_in(tmp_path), DATA, WORKERS)
    worker = Workers(tf.distribute.get_strategy())
    worker.chief = False
    assert begin_run(recipe_in(tmp_path), DATA, worker) == chief
