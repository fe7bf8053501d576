"""Classes of a dataset: their names, and whether the training split has images of them."""

import logging
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import int64_feature, jpeg, write_record
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights
from sklearn.utils.class_weight import compute_class_weight

import keras_vit
from keras_vit.recipes import fit
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.data.image_dataset import count_nonempty
from keras_vit.recipes.data.model_classes import (
    balanced_weights,
    check_several_classes,
    class_counts,
    with_model_classes,
)
from keras_vit.recipes.data.pipeline import weight_classes
from keras_vit.recipes.prepare import prepare
from keras_vit.recipes.recipe import Data, Supervised
from keras_vit.recipes.runs.run_data import RunData


@pytest.mark.parametrize("counts", [[3, 1, 8], [5, 0, 1]])
def test_balanced_weights_equal_those_of_scikit_learn(counts):
    labels = np.repeat(np.arange(3), counts)
    weights = balanced_weights(np.array(counts))
    present = np.unique(labels)
    np.testing.assert_allclose(weights[present], compute_class_weight("balanced", classes=present, y=labels))
    batch = tf.data.Dataset.from_tensors((tf.zeros((4, 1)), tf.constant([0, 2, 2, -1], tf.int64)))
    _, integers, weighted = next(iter(weight_classes(batch, weights)))
    expected = class_weight_to_sample_weights(integers[:3], dict(enumerate(weights)))  # Keras's
    np.testing.assert_allclose(weighted[:3], expected, rtol=1e-6)


def test_a_flat_folder_of_images_is_one_class(tmp_path, toy):
    write_images(tmp_path, {"val": 2})
    dataset = open_dataset(Data(f"folder:{tmp_path}"))
    for check in (check_several_classes, lambda dataset: with_model_classes(dataset, toy(num_classes=3))):
        with pytest.raises(ValueError, match=r"'val'.* image,label .*labels.txt.* csv:"):
            check(dataset)


def test_class_names_of_installed_models_are_not_edited(tmp_path):
    write_images(tmp_path, {f"test/Class {i}": 1 for i in range(10)})
    dataset, weights = open_dataset(Data(f"folder:{tmp_path}")), "cifar10/R6_Ti_4"
    with pytest.raises(ValueError, match=r"--output copy.keras and write .* into copy.keras.labels.txt\.$"):
        with_model_classes(dataset, keras_vit.load(weights), weights)


def write_images(folder, counts):
    """Images in <split>/<class>; `counts` are their numbers."""
    for path, count in counts.items():
        (folder / path).mkdir(parents=True)
        for i in range(count):
            (folder / path / f"{i}.jpg").write_bytes(jpeg(i))


def test_classes_that_are_only_evaluated(tmp_path, caplog):
    write_images(tmp_path, {"train/a": 2, "train/b": 3, "test/a": 2, "test/new": 1, "other/new": 2, "other/a": 1})
    dataset = open_dataset(Data(f"folder:{tmp_path}"))
    assert class_counts(dataset, "train").tolist() == [2, 3, 0] and class_counts(dataset, "test").tolist() == [2, 0, 1]
    caplog.clear()
    data = RunData(Supervised(), dataset)
    data.check_trained_classes("test", ["train[:0]"])
    assert not caplog.text
    with pytest.raises(ValueError, match="'test.2:1.' .*no images"):
        count_nonempty(dataset, "test[2:1]")
    data.check_trained_classes("train", ["test"])
    assert "1 of 3 labels" in caplog.text and "new" in caplog.text
    with pytest.raises(ValueError, match="2 of 3 labels of 'other'.* new"):
        data.check_trained_classes("train", ["other"])


def test_parts_of_sorted_data_are_reported_before_the_training(tmp_path, supervised, monkeypatch):
    """Top-1 accuracy would be 0, as if the training had diverged."""
    monkeypatch.setattr(fit.loop, "fit", lambda *_: pytest.fail("trained first"))
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\n")
    with tf.io.TFRecordWriter(str(tmp_path / "train.tfrecord")) as writer:
        for i in range(40):
            write_record(writer, ("image", "label"), int64_feature(i // 10))
    data = replace(supervised.data, dataset=f"tfrecord:{tmp_path}", train_split="train[:75%]", batch_size=8)
    for field in ("test_split", "validation_split"):
        splits = {"test_split": "train[:25%]", "validation_split": None} | {field: "train[75%:]"}
        with pytest.raises(ValueError, match="10 of 10 labels.*: d[.]"):
            fit.train(replace(supervised, data=replace(data, **splits)))


def test_composed_and_decomposed_names_are_one_class(tmp_path):
    names = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")]
    assert names[0] != names[1]
    write_images(tmp_path / "images", {f"train/{names[0]}": 2, "train/b": 1, f"test/{names[1]}": 1, "test/b": 1})
    dataset = open_dataset(Data(f"folder:{tmp_path / 'images'}"))
    assert dataset.class_names == ("b", names[0]) and class_counts(dataset, "test").tolist() == [1, 1]
    prepare(str(tmp_path / "images"), str(tmp_path / "out"))
    prepared = open_dataset(Data(f"tfrecord:{tmp_path / 'out'}"))
    assert prepared.class_names == dataset.class_names and class_counts(prepared, "test").tolist() == [1, 1]


def test_a_class_without_a_name_is_found_when_the_data_is_opened(tmp_path, caplog):
    write_images(tmp_path, {"train/a": 1, "train/ ": 1})
    caplog.set_level(logging.ERROR)
    for read in (lambda: open_dataset(Data(f"folder:{tmp_path}")), lambda: prepare(str(tmp_path), f"{tmp_path}-out")):
        with pytest.raises(ValueError, match="' '"):
            read()
