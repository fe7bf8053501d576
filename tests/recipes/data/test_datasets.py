import io
import logging

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from keras_vit.recipes.data import (
    class_names,
    count_examples,
    decoded_images,
    evaluation_arrays,
    open_dataset,
    training_batches,
)
from keras_vit.recipes.data.datasets import from_builder
from keras_vit.recipes.data.digits import SPLITS, Digits
from keras_vit.recipes.recipe import Data


def jpeg(value):
    file = io.BytesIO()
    Image.fromarray(np.full((9, 11, 3), value, "uint8")).save(file, "JPEG")
    return file.getvalue()


def labels_of(dataset, split):
    return [label.tolist() for _, _, label in dataset.read(split).as_numpy_iterator()]


def names_of(dataset, split):
    return [name.decode() for name, _, _ in dataset.read(split).as_numpy_iterator()]


def test_digits(data_dir):
    dataset = open_dataset(Data(dataset="digits", data_dir=data_dir))
    assert dataset.splits == SPLITS and class_names(dataset) == [str(digit) for digit in range(10)]
    assert count_examples(dataset, "train[:50%]+test[-7:]") == 548 + 7
    assert names_of(dataset, "test[3:5]") == ["test[3:5] number 0", "test[3:5] number 1"]
    with pytest.raises(ValueError, match="No split 'dev' in digits. Splits: train, validation, test"):
        count_examples(dataset, "dev")
    with pytest.raises(ValueError, match=r"No split 'train\[:9999\]' in digits"):
        count_examples(dataset, "train[:9999]")


@pytest.fixture
def folder(tmp_path):
    for split, counts in (("train", {"ant": 30, "bee": 10, "cow": 10}), ("test", {"bee": 2, "yak": 1})):
        for name, count in counts.items():
            place = tmp_path / split / name
            place.mkdir(parents=True)
            for number in range(count):
                (place / f"{number}.JPG").write_bytes(jpeg(10 * number % 250))
            (place / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_parts_of_a_folder_are_of_all_classes_and_make_the_whole(folder):
    dataset = open_dataset(Data(dataset=f"folder:{folder}"))
    assert dataset.splits == {"test": 3, "train": 50} and class_names(dataset) == ["ant", "bee", "cow", "yak"]
    first, rest, whole = (labels_of(dataset, split) for split in ("train[:60%]", "train[60%:]", "train"))
    assert len(first) == count_examples(dataset, "train[:60%]") == 30
    assert first + rest == whole and set(first) == set(rest) == {0, 1, 2}
    assert labels_of(dataset, "train") == whole  # an order that never changes
    numbers = dict(zip(names_of(dataset, "train+test"), labels_of(dataset, "train+test")))
    assert len(numbers) == 53 and numbers[f"{folder}/test/yak/0.JPG"] == 3
    images, _ = next(decoded_images(dataset, "test", 3))
    assert [image.shape for image in images] == [(9, 11, 3)] * 3


def test_folders_that_are_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match="not laid out as /path/<split>/<class>/<image>"):
        open_dataset(Data(dataset=f"folder:{tmp_path}"))
    for place in ("", tmp_path / "nowhere"):
        with pytest.raises(ValueError, match=f"There is no folder '{place}'"):
            open_dataset(Data(dataset=f"folder:{place}"))


def test_places_may_be_below_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert open_dataset(Data(dataset=f"folder:~/{folder.name}")).splits == {"test": 3, "train": 50}
    (folder / "records").mkdir()
    write_records(folder / "records", ("image", "label"))
    assert open_dataset(Data(dataset=f"tfrecord:~/{folder.name}/records")).splits == {"train": 7, "validation": 1}


class Real(tfds.core.GeneratorBasedBuilder):
    """Images with none, one or two right answers."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None
    answers = ([], [2], [0, 2], [1])

    def _info(self):
        label = tfds.features.ClassLabel(names=["a", "b", "c"])
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(encoding_format="jpeg"),
                    "original_label": label,
                    "real_label": tfds.features.Sequence(label),
                }
            ),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        return {"validation": self._generate_examples()}

    def _generate_examples(self):
        for key, answers in enumerate(self.answers):
            image = np.full((9, 9, 3), 50 * key, "uint8")
            yield key, {"image": image, "original_label": 0, "real_label": answers}


@pytest.fixture
def real(tmp_path):
    builder = Real(data_dir=tmp_path)
    builder.download_and_prepare()
    return builder


def test_several_right_answers(real):
    dataset = from_builder(real, "real")
    expected = [[0, 0, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0]]
    assert labels_of(dataset, "validation") == expected and class_names(dataset) == ["a", "b", "c"]
    images, labels = evaluation_arrays(Data(image_size=8, batch_size=3), dataset, "validation")
    assert images.shape == (4, 8, 8, 3) and labels.dtype == np.float32
    np.testing.assert_array_equal(labels, expected)


def test_a_task_makes_its_own_labels(real):
    dataset = from_builder(real, "task", lambda example: tf.size(example["real_label"]), ("none", "one", "two"), 150)
    assert labels_of(dataset, "validation") == [0, 1, 2, 1]
    images, _ = next(decoded_images(dataset, "validation", 4))
    assert images[3].max() == 150  # 255 // 150 is 1


def test_a_folder_that_tensorflow_datasets_wrote(real):
    digits = open_dataset(Data(dataset=f"tfrecord:{real.data_dir}"))
    assert digits.splits == {"validation": 4} and digits.several_answers


def test_data_without_labels_is_refused(real):
    del real.info.features._feature_dict["real_label"]
    with pytest.raises(ValueError, match=r"'real' has the features \['image', 'original_label'\]; 'image' and 'label'"):
        from_builder(real, "real")
    real.info.features._feature_dict["label"] = tfds.features.Scalar(np.int64)
    with pytest.raises(ValueError, match="'label' of the data set 'real' is Scalar.*, where a ClassLabel is needed"):
        from_builder(real, "real")


def number(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def write_record(writer, keys, label, value=0):
    """An image of one value; `label` is a feature."""
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg(value)]))
    writer.write(
        tf.train.Example(features=tf.train.Features(feature=dict(zip(keys, (image, label))))).SerializeToString()
    )


def write_records(folder, keys, first=0, names="a\nb\nc\n"):
    """5 and 2 training images in two files, 1 to validate; returns their labels in the order of the files."""
    labels = {"train-00000-of-00002": [0, 1, 2, 0, 1], "train-00001-of-00002": [2, 2], "validation-00000-of-00001": [1]}
    for name, numbers in labels.items():
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for label in numbers:
                write_record(writer, keys, number(label + first), 40 * label)
    if names:
        (folder / "labels.txt").write_text(names)
    return labels


@pytest.mark.parametrize("keys", [("image/encoded", "image/class/label"), ("image", "label")])
@pytest.mark.parametrize("pattern", ["", "/*-of-*"])
def test_records_of_others(tmp_path, keys, pattern, caplog):
    write_records(tmp_path, keys)
    with caplog.at_level(logging.INFO):
        dataset = open_dataset(Data(dataset=f"tfrecord:{tmp_path}{pattern}"))
    assert "Counting the images of 3 TFRecord files" in caplog.text
    assert dataset.splits == {"train": 7, "validation": 1} and class_names(dataset) == ["a", "b", "c"]
    assert sorted(labels_of(dataset, "train")) == [0, 0, 1, 1, 2, 2, 2]
    assert labels_of(dataset, "train") == labels_of(dataset, "train")
    assert labels_of(dataset, "train[5:]") == [2, 2] and labels_of(dataset, "train[4:6]") == [1, 2]
    assert labels_of(dataset, "train[1:3]+validation") == [1, 1, 2]  # several files at a time
    assert names_of(dataset, "train[6:]") == [f"{tmp_path}/train-00001-of-00002 number 1"]
    images, labels = next(decoded_images(dataset, "train", 10))
    np.testing.assert_array_equal([image[0, 0, 0] // 40 for image in images], labels)


def test_records_that_do_not_fit_their_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="There are no TFRecord files at"):
        open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
    write_records(tmp_path, ("image", "label"), names=None)
    with pytest.raises(ValueError, match=r"has no labels.txt or classes.txt. Write one"):
        open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
    write_records(tmp_path, ("image", "label"), first=1)
    with pytest.raises(ValueError, match=r'has the label 3, but .* names 3 classes.*a first line such as "background"'):
        open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
    write_records(tmp_path, ("photo", "label"))
    with pytest.raises(ValueError, match=r"has the features \['label', 'image'\]. Expected image/encoded and"):
        open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))


def test_labels_without_a_name_are_found_in_any_file_and_when_they_are_read(tmp_path, monkeypatch):
    (tmp_path / "labels.txt").write_text("a\nb\n")
    for shard in range(9):  # sorted by class, and counted from 1
        with tf.io.TFRecordWriter(f"{tmp_path}/train-{shard:05}-of-00009") as writer:
            write_record(writer, ("image", "label"), number(1 + shard // 8))
    data = Data(dataset=f"tfrecord:{tmp_path}", image_size=8, batch_size=3, shuffle_images=9)
    with pytest.raises(ValueError, match="train-00008-of-00009 has the label 2, but .* names 2 classes"):
        open_dataset(data)
    monkeypatch.setattr("keras_vit.recipes.data.records.PEEKED_FILES", 1)
    dataset = open_dataset(data)
    assert labels_of(dataset, "train[:8]") == [1] * 8
    message = "train-00008-of-00009 number 0.*has the label.*2.*a first line such as"
    for read in (
        lambda: labels_of(dataset, "train"),
        lambda: list(decoded_images(dataset, "train", 3, max_corrupt=1.0)),
        lambda: list(training_batches(data, dataset, 0).take(3)),
    ):
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
            read()


def test_records_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb\n")
    keys, file = ("image", "label"), str(tmp_path / "train.tfrecord")
    with tf.io.TFRecordWriter(file) as writer:
        write_record(writer, keys, tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"])))
    with pytest.raises(ValueError, match="has bytes_list with 0 integers as 'label'. Expected an int64_list"):
        open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
    with tf.io.TFRecordWriter(file, "GZIP") as writer:
        write_record(writer, keys, number(1))
    with pytest.raises(ValueError, match="train.tfrecord cannot be read as TFRecords: it is damaged or compressed"):
        open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))


def test_names_that_are_unknown_are_refused(tmp_path):
    with pytest.raises(ValueError, match="knows no data set 'no_such_data'"):
        open_dataset(Data(dataset="no_such_data", data_dir=str(tmp_path)))
    with pytest.raises(ValueError, match="VTAB has no task 'vtab/dogs'. Tasks: vtab/caltech101"):
        open_dataset(Data(dataset="vtab/dogs"))


def test_vtab_opens_the_task(monkeypatch, data_dir):
    opened = []

    def prepared(name, place):
        opened.append(name)
        return Digits(data_dir=data_dir)

    monkeypatch.setattr("keras_vit.recipes.data.datasets.prepared", prepared)
    dataset = open_dataset(Data(dataset="vtab/cifar100"))
    assert opened == ["cifar100:3.*.*"] and dataset.name == "vtab/cifar100"
    assert labels_of(dataset, "train[:3]") == labels_of(open_dataset(Data(dataset="digits")), "train[:3]")
