"""Faults of data that are noticed only while training or evaluating, and what is said about them."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import int64_feature, jpeg, write_record

from keras_vit.recipes.data import evaluation_batches, open_dataset, training_batches
from keras_vit.recipes.data.data_errors import report_data_errors
from keras_vit.recipes.fit import evaluate
from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised
from keras_vit.recipes.run_recipe import run
from keras_vit.recipes.training.compile import compile_for_evaluation

TINY = Architecture("Ti/16", depth=1, width=16, num_heads=2, mlp_dim=16)
DATA = Data(image_size=16, batch_size=4, crop="none", validation_split=None)


def write_files(folder, labels, names="a\nb\n"):
    """A TFRecord for each list of labels."""
    (folder / "labels.txt").write_text(names)
    for shard, part in enumerate(labels):
        with tf.io.TFRecordWriter(f"{folder}/train-{shard:05}-of-{len(labels):05}") as writer:
            for label in part:
                write_record(writer, ("image", "label"), int64_feature(label))


def fit_and_evaluate(data, message):
    """Both of Keras's loops raise one sentence."""
    dataset = open_dataset(data)
    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(ValueError, match=f"^The dataset {data.dataset} cannot be read: {message}"):
        with report_data_errors(dataset):
            model.fit(training_batches(data, dataset, seed=0), steps_per_epoch=8, shuffle=False, verbose=0)
    with pytest.raises(ValueError, match=f"^The split 'train' of {data.dataset} cannot be read: {message}") as caught:
        with report_data_errors(dataset, "train"):
            model.evaluate(evaluation_batches(data, dataset, "train"), verbose=0)
    assert "\n" not in str(caught.value) and "node" not in str(caught.value)


@pytest.mark.slow
def test_labels_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.recipes.data.tfrecords.CHECKED_FILES", 1)
    write_files(tmp_path, [[0, 1, 0], [0, 2, 0]])
    message = '.*/train-00001-of-00002 image 1 has the label 2 but .*names 2 classes.*a first line such as "background"'
    fit_and_evaluate(replace(DATA, dataset=f"tfrecord:{tmp_path}"), message)


@pytest.mark.slow
def test_damaged_records(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.recipes.data.tfrecords.CHECKED_RECORDS", 2)
    write_files(tmp_path, [[0] * 30])
    file = tmp_path / "train-00000-of-00001"
    content = bytearray(file.read_bytes())
    content[-300] ^= 255
    file.write_bytes(content)
    message = r"a TFRecord file is damaged \(corrupted record at \d+\). Copy or write it again.$"
    fit_and_evaluate(replace(DATA, dataset=f"tfrecord:{tmp_path}"), message)


def test_truncated_files_are_named_when_the_dataset_is_opened(tmp_path, monkeypatch):
    """At any length, also where whole records remain to be checked."""
    monkeypatch.setattr("keras_vit.recipes.data.tfrecords.CHECKED_RECORDS", 2)
    write_files(tmp_path, [[0] * 5, [1] * 5])
    file = tmp_path / "train-00001-of-00002"
    content = file.read_bytes()
    record = len(content) // 5
    for length in (len(content) - 1, len(content) - 40, 4 * record + 1, 3 * record + 11, 3 * record + 12):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=rf"train-00001-of-00002 is truncated .* it has {length:,} bytes. Copy or"):
            open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
    file.write_bytes(content)
    assert open_dataset(Data(dataset=f"tfrecord:{tmp_path}")).splits == {"train": 10}


@pytest.mark.slow
def test_other_errors_of_tensorflow_are_passed_on(tmp_path):
    write_files(tmp_path, [[0, 1]])
    dataset = open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
    with pytest.raises(tf.errors.InvalidArgumentError), report_data_errors(dataset):
        tf.debugging.Assert(tf.constant(False), ["something else"])


def test_corrupt_images_have_no_loss(tmp_path, toy):
    """The mean over the images that can be decoded: the logarithm of 2 for equal logits."""
    for class_name in "ab":
        (tmp_path / "test" / class_name).mkdir(parents=True)
        for i in range(5):
            damaged = b"\xff\xd8\xff damaged"
            (tmp_path / "test" / class_name / f"{i}.jpg").write_bytes(damaged if i > 2 else jpeg(40 * i))
    data = replace(DATA, dataset=f"folder:{tmp_path}", max_corrupt=0.5)
    model = toy(image_size=16, num_classes=2)
    model.head.kernel.assign(0 * model.head.kernel)
    compile_for_evaluation(model, Supervised(data=data), 2)
    metrics = evaluate(model, data, "test")
    assert metrics["images"] == 6 and metrics["loss"] == pytest.approx(np.log(2), rel=1e-6)


@pytest.mark.slow
def test_a_failed_evaluation_keeps_the_trained_model(tmp_path):
    """Half of the test images are corrupt. The fixed split is then evaluated without training again."""
    for split in ("train", "test"):
        for class_name in "ab":
            folder = tmp_path / split / class_name
            folder.mkdir(parents=True)
            for i in range(4):
                damaged = split == "test" and i > 1
                (folder / f"{i}.jpg").write_bytes(b"\xff\xd8\xff damaged" if damaged else jpeg(40 * i))
    output = tmp_path / "run"
    recipe = Supervised(
        architecture=TINY,
        data=replace(DATA, dataset=f"folder:{tmp_path}"),
        optimizer=Optimizer(warmup_steps=1),
        run=Run(folder=str(output), epoch_steps=3),
        total_steps=3,
    )
    with pytest.raises(ValueError, match="More than 1.00% .*The training is complete: its model is .*/run/model.keras"):
        run(recipe)
    model = keras.saving.load_model(output / "model.keras")
    assert (output / "labels.txt").read_text() == "a\nb\n" and not (output / "metrics.json").exists()
    for class_name in "ab":
        for i in (2, 3):
            (tmp_path / "test" / class_name / f"{i}.jpg").write_bytes(jpeg(40 * i))
    metrics = run(replace(recipe, run=replace(recipe.run, resume=True)))
    assert set(metrics) == {"loss", "top1", "images"} and metrics["images"] == 8 and (output / "metrics.json").exists()
    for before, after in zip(model.weights, keras.saving.load_model(output / "model.keras").weights):
        assert (before.numpy() == after.numpy()).all()
