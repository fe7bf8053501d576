"""TFRecords that TensorFlow Datasets did not write."""

import logging

import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import image_names, int64_feature, labels_of, write_record, write_records

from keras_vit.recipes.data import class_names, decoded_images, open_dataset, training_batches
from keras_vit.recipes.recipe import Data


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("image/encoded", "image/class/label"), ("image", "label")])
@pytest.mark.parametrize("pattern", ["", "/*-of-*"])
def test_splits_labels_and_images_are_read(tmp_path, keys, pattern, caplog):
    write_records(tmp_path, keys)
    with caplog.at_level(logging.INFO):
        dataset = open_dataset(Data(dataset=f"tfrecord:{tmp_path}{pattern}"))
    assert "Counting the images of 3 TFRecord files" in caplog.text
    assert dataset.splits == {"train": 7, "validation": 1} and class_names(dataset) == ["a", "b", "c"]
    assert sorted(labels_of(dataset, "train")) == [0, 0, 1, 1, 2, 2, 2]
    assert labels_of(dataset, "train") == labels_of(dataset, "train")
    assert labels_of(dataset, "train[5:]") == [2, 2] and labels_of(dataset, "train[4:6]") == [1, 2]
    assert labels_of(dataset, "train[1:3]+validation") == [1, 1, 2]  # files are interleaved
    assert image_names(dataset, "train[6:]") == [f"{tmp_path}/train-00001-of-00002 image 1"]
    images, labels = next(decoded_images(dataset, "train", 10))
    np.testing.assert_array_equal([image[0, 0, 0] // 40 for image in images], labels)


def test_missing_files_names_and_features_raise(tmp_path):
    data = Data(dataset=f"tfrecord:{tmp_path}")
    with pytest.raises(ValueError, match="There are no TFRecord files at"):
        open_dataset(data)
    write_records(tmp_path, ("image", "label"), names=None)
    with pytest.raises(ValueError, match=r"has no labels.txt or classes.txt. Create one"):
        open_dataset(data)
    write_records(tmp_path, ("image", "label"), first_label=1)
    with pytest.raises(ValueError, match=r'has the label 3, but .* names 3 classes.*a first line such as "background"'):
        open_dataset(data)
    write_records(tmp_path, ("photo", "label"))
    with pytest.raises(ValueError, match=r"expected the features image/encoded and .*Received: \['label', 'photo'\]"):
        open_dataset(data)


@pytest.mark.slow
def test_unnamed_labels_are_found_in_any_file_and_while_reading(tmp_path, monkeypatch):
    (tmp_path / "labels.txt").write_text("a\nb\n")
    for shard in range(9):  # sorted by class, and counted from 1
        with tf.io.TFRecordWriter(f"{tmp_path}/train-{shard:05}-of-00009") as writer:
            write_record(writer, ("image", "label"), int64_feature(1 + shard // 8))
    data = Data(dataset=f"tfrecord:{tmp_path}", image_size=8, batch_size=3, shuffle_images=9)
    with pytest.raises(ValueError, match="train-00008-of-00009 has the label 2, but .* names 2 classes"):
        open_dataset(data)
    monkeypatch.setattr("keras_vit.recipes.data.tfrecords.CHECKED_FILES", 1)
    dataset = open_dataset(data)
    assert labels_of(dataset, "train[:8]") == [1] * 8
    message = "train-00008-of-00009 image 0.*has the label.*2.*a first line such as"
    for read in (
        lambda: labels_of(dataset, "train"),
        lambda: list(decoded_images(dataset, "train", 3, max_corrupt=1.0)),
        lambda: list(training_batches(data, dataset, 0).take(3)),
    ):
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
            read()


def test_other_labels_and_compressed_files_raise(tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb\n")
    keys, file = ("image", "label"), str(tmp_path / "train.tfrecord")
    with tf.io.TFRecordWriter(file) as writer:
        write_record(writer, keys, tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"])))
    with pytest.raises(ValueError, match="'label' must be an int64_list .* Received: bytes_list with 0 integers"):
        open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
    with tf.io.TFRecordWriter(file, "GZIP") as writer:
        write_record(writer, keys, int64_feature(1))
    with pytest.raises(ValueError, match="train.tfrecord cannot be read as TFRecords: it is damaged or compressed"):
        open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
