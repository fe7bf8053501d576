"""Numbered files of a split: missing, mixed and truncated ones."""

import os

import pytest
from images_on_disk import jpeg, write_records

from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.data.shard_files import check_numbers
from keras_vit.recipes.prepare import prepare
from keras_vit.recipes.recipe import Data


def check(*names):
    check_numbers(names, names)


def test_complete_files_are_accepted():
    check("a/train-00000-of-00002", "a/train-00001-of-00002", "a/test-0-of-1.parquet", "b/train-00000-of-00001", "x")
    check("a/train-00001-of-00002-f3.parquet", "a/train-00000-of-00002-9e.parquet")  # of the Hub, with hashes
    check_numbers(["a/train-1-of-2"], ["a/train-0-of-2", "a/train-1-of-2"])  # a glob that omits a file


@pytest.mark.parametrize(
    "names,message",
    [
        (["a/t-00001-of-00003"], "2 of 3 files are missing: a/t-00000-of-00003, a/t-00002-of-00003. Copy or write"),
        (["t-0-of-1", "t-0-of-2", "t-1-of-2"], r"several datasets .*: t-\*-of-1, t-\*-of-2. Keep those of one"),
        (["t-0-of-1-f3.parquet", "t-0-of-1-9e.parquet"], "several datasets are in one folder: t-0-of-1. Keep"),
    ],
)
def test_missing_and_mixed_files_raise(names, message):
    with pytest.raises(ValueError, match=message):
        check(*names)


def test_a_missing_tfrecord_file_raises(tmp_path):
    write_records(tmp_path, ("image", "label"))
    (tmp_path / "train-00000-of-00002").rename(tmp_path / "other")
    for pattern in ("", "/train-*"):
        with pytest.raises(ValueError, match="1 of 2 files are missing: .*/train-00000-of-00002. Copy"):
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
    for length, message in ((first + 20, "is truncated or damaged"), (first, "is truncated: it has 1 of 4 images")):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=f"images-train.* {message}"):
            open_dataset(data)
    os.remove(file)
    with pytest.raises(ValueError, match="1 of 1 files are missing: .*images-train"):
        open_dataset(data)
