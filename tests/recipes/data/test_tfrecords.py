"""TFRecords that TensorFlow Datasets did not write; numbered files that are missing, mixed or truncated."""

import logging
import os

import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import image_names, int64_feature, jpeg, labels_of, write_record, write_records

from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.data.tfrecords import check_numbers
from keras_vit.recipes.prepare import prepare
from keras_vit.recipes.recipe import Data

KEYS = ("image", "label")


@pytest.mark.slow
@pytest.mark.parametrize("keys,pattern", [(("image/encoded", "image/class/label"), ""), (KEYS, "/*-of-*")])
def test_splits_labels_and_images_are_read(tmp_path, keys, pattern, caplog):
    write_records(tmp_path, keys)
    with caplog.at_level(logging.INFO):
        dataset = open_dataset(Data(dataset=f"tfrecord:{tmp_path}{pattern}"))
    assert "3 TFRecord files" in caplog.text
    assert dataset.splits == {"train": 7, "validation": 1} and list(dataset.class_names) == ["a", "b", "c"]
    assert sorted(labels_of(dataset, "train")) == [0, 0, 1, 1, 2, 2, 2]
    assert labels_of(dataset, "train") == labels_of(dataset, "train")
    assert labels_of(dataset, "train[5:]") == [2, 2] and labels_of(dataset, "train[4:6]") == [1, 2]
    assert labels_of(dataset, "train[1:3]+validation") == [1, 1, 2]  # files are interleaved
    assert image_names(dataset, "train[6:]") == [f"{tmp_path}/train-00001-of-00002 image 1"]
    images, labels = next(decoded_images(dataset, "train", 10))
    np.testing.assert_array_equal([image[0, 0, 0] // 40 for image in images], labels)


def test_a_folder_with_the_name_of_a_pattern(tmp_path):
    for name, values in (("t1", "a\nb\nc\n"), ("t[1]", "x\ny\nz\n")):
        (tmp_path / name).mkdir()
        write_records(tmp_path / name, KEYS, names=values)
    dataset = open_dataset(Data(dataset=f"tfrecord:{tmp_path}/t[1]"))
    assert dataset.class_names == ("x", "y", "z")
    assert image_names(dataset, "train[:1]") == [f"{tmp_path}/t[1]/train-00000-of-00002 image 0"]


def test_missing_files_names_and_features_raise(tmp_path):
    data = Data(dataset=f"tfrecord:{tmp_path}")
    with pytest.raises(ValueError, match="no TFRecord files"):
        open_dataset(data)
    for keys, options, words in (
        (KEYS, {"names": None}, "labels.txt"),
        (KEYS, {"first_label": 1}, "label 3.* 3 classes"),
        (("photo", "label"), {}, "'label', 'photo'"),
    ):
        write_records(tmp_path, keys, **options)
        with pytest.raises(ValueError, match=words):
            open_dataset(data)


def test_other_labels_and_compressed_files_raise(tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb\n")
    names = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"]))
    for options, label, words in (("", names, "bytes_list"), ("GZIP", int64_feature(1), "train.tfrecord .*compressed")):
        with tf.io.TFRecordWriter(f"{tmp_path}/train.tfrecord", options) as writer:
            write_record(writer, KEYS, label)
        with pytest.raises(ValueError, match=words):
            open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))


def test_complete_files_are_accepted():
    names = ["a/train-00000-of-00002", "a/train-00001-of-00002", "a/test-0-of-1.parquet", "b/train-00000-of-00001", "x"]
    check_numbers(names, names)
    of_the_hub = ["a/train-00001-of-00002-f3.parquet", "a/train-00000-of-00002-9e.parquet"]  # with hashes
    check_numbers(of_the_hub, of_the_hub)
    check_numbers(["a/train-1-of-2"], ["a/train-0-of-2", "a/train-1-of-2"])  # a glob that omits a file


@pytest.mark.parametrize(
    "names,words",
    [
        (["a/t-00001-of-00003"], "2 of 3 .*a/t-00000-of-00003, a/t-00002-of-00003"),
        (["t-0-of-1", "t-0-of-2", "t-1-of-2"], r"t-\*-of-1, t-\*-of-2"),
        (["t-0-of-1-f3.parquet", "t-0-of-1-9e.parquet"], "several .*: t-0-of-1"),
    ],
)
def test_missing_and_mixed_files_raise(names, words):
    with pytest.raises(ValueError, match=words):
        check_numbers(names, names)


@pytest.mark.parametrize("pattern", ["", "/train-*"])
def test_a_missing_tfrecord_file_raises(tmp_path, pattern):
    write_records(tmp_path, KEYS)
    (tmp_path / "train-00000-of-00002").rename(tmp_path / "other")
    with pytest.raises(ValueError, match="1 of 2 .*/train-00000-of-00002"):
        open_dataset(Data(f"tfrecord:{tmp_path}{pattern}"))


def test_prepared_files_that_are_missing_or_truncated_raise(tmp_path):
    (folder := tmp_path / "images" / "train" / "cat").mkdir(parents=True)
    for value in range(4):
        (folder / f"{value}.jpg").write_bytes(jpeg(value))
    prepare(str(tmp_path / "images"), str(tmp_path / "out"))
    data, (file,) = Data(f"tfrecord:{tmp_path}/out"), (tmp_path / "out").glob("images-train*")
    assert open_dataset(data).splits["train"] == 4
    content = file.read_bytes()
    first = 16 + int.from_bytes(content[:8], "little")
    for length, words in ((first + 20, "truncated"), (first, "truncated.* 1 of 4 images")):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=f"images-train.* {words}"):
            open_dataset(data)
    os.remove(file)
    with pytest.raises(ValueError, match="1 of 1 .*images-train"):
        open_dataset(data)
