"""Opening datasets of TensorFlow Datasets and VTAB-1k by name; downloads without a connection, from a local server."""

import re
import socket
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow_datasets as tfds
from images_on_disk import image_names, labels_of
from sklearn.datasets import load_digits

from keras_vit.recipes.data import count_examples, evaluation_arrays, open_dataset
from keras_vit.recipes.data.datasets import DIGITS_SPLITS, Digits, download_and_prepare, from_builder
from keras_vit.recipes.recipe import Data


def test_digits(data_dir):
    dataset = open_dataset(Data(dataset="digits", data_dir=data_dir))
    assert dataset.splits == DIGITS_SPLITS and list(dataset.class_names) == [str(digit) for digit in range(10)]
    assert count_examples(dataset, "train[:50%]+test[-7:]") == 548 + 7
    assert image_names(dataset, "test[3:5]") == ["test[3:5] image 0", "test[3:5] image 1"]
    for split in ("dev", r"train[:9999]"):
        with pytest.raises(ValueError, match=re.escape(f"'{split}'")):
            count_examples(dataset, split)


def test_splits_of_digits_are_fixed_and_have_every_image_once(data_dir):
    builder = Digits(data_dir=data_dir)
    builder.download_and_prepare()
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == DIGITS_SPLITS
    assert builder.info.features["label"].names == [str(digit) for digit in range(10)]
    pairs = {}
    for name in DIGITS_SPLITS:
        examples = builder.as_dataset(name).as_numpy_iterator()
        pairs[name] = [(example["image"].tobytes(), int(example["label"])) for example in examples]
    digits = load_digits()
    images = np.round(digits.images * 255 / 16).astype("uint8")
    expected = sorted((image.tobytes(), int(label)) for image, label in zip(images, digits.target))
    assert sorted(pair for part in pairs.values() for pair in part) == expected
    assert {name: [label for _, label in part[:8]] for name, part in pairs.items()} == {
        "train": [4, 0, 9, 1, 4, 7, 1, 5],
        "validation": [7, 3, 6, 9, 9, 3, 8, 2],
        "test": [5, 2, 2, 1, 9, 0, 4, 0],
    }
    assert np.bincount([label for _, label in pairs["train"]]).min() >= 100  # enough for labels_per_class=100


class Real(tfds.core.GeneratorBasedBuilder):
    """Images with zero, one or two correct classes."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None
    key = "real_label"
    labels = ([], [2], [0, 2], [1])

    def _info(self):
        label, image = tfds.features.ClassLabel(names=["a", "b", "c"]), tfds.features.Image(encoding_format="jpeg")
        features = {"image": image, "original_label": label, self.key: tfds.features.Sequence(label)}
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
        )

    def _split_generators(self, dl_manager):
        return {"validation": self._generate_examples()}

    def _generate_examples(self):
        for key, labels in enumerate(self.labels):
            image = np.full((9, 9, 3), 50 * key, "uint8")
            yield key, {"image": image, "original_label": 0, self.key: labels}


class SeveralLabels(Real):
    """As voc and others: one class is named twice."""

    VERSION = tfds.core.Version("1.0.0")
    key = "labels"
    labels = ([], [2, 2], [0, 2], [1])


@pytest.fixture
def real(tmp_path):
    builder = Real(data_dir=tmp_path)
    builder.download_and_prepare()
    return builder


@pytest.mark.slow
def test_several_correct_classes_are_multi_hot_labels(real):
    dataset = from_builder(real, "real")
    expected = [[0, 0, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0]]
    assert labels_of(dataset, "validation") == expected and list(dataset.class_names) == ["a", "b", "c"]
    images, labels = evaluation_arrays(Data(image_size=8, batch_size=3), dataset, "validation")
    assert images.shape == (4, 8, 8, 3) and labels.dtype == np.float32
    np.testing.assert_array_equal(labels, expected)
    records = open_dataset(Data(dataset=f"tfrecord:{real.data_dir}"))
    assert records.splits == {"validation": 4} and records.multi_label


def test_a_sequence_of_labels_is_multi_hot(tmp_path):
    builder = SeveralLabels(data_dir=tmp_path)
    builder.download_and_prepare()
    dataset = from_builder(builder, "several")
    assert dataset.multi_label and labels_of(dataset, "validation") == [[0, 0, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0]]


def test_data_without_class_labels_raises(real):
    features = real.info.features._feature_dict
    del features["real_label"]
    with pytest.raises(ValueError, match="'original_label'"):
        from_builder(real, "real")
    features["label"] = tfds.features.Scalar(np.int64)
    with pytest.raises(ValueError, match="Scalar"):
        from_builder(real, "real")


def test_unknown_names_raise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name, words in (
        ("photos", "folder:photos"),
        ("no_such_data", "no_such_data"),
        ("vtab/dogs", "vtab/caltech101"),
    ):
        with pytest.raises(ValueError, match=words):
            open_dataset(Data(dataset=name, data_dir=str(tmp_path)))


@pytest.fixture
def builder(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    builder = SimpleNamespace(name="toy", data_dir_root=tmp_path, data_dir=str(tmp_path / "toy"), prepared=0)
    builder.info = SimpleNamespace(download_size=0)
    builder.data_path, builder.MANUAL_DOWNLOAD_INSTRUCTIONS = tmp_path / "toy", None
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        builder.url_infos = {f"http://127.0.0.1:{unused.getsockname()[1]}/toy.tgz": None}
    builder.download_and_prepare = lambda: setattr(builder, "prepared", builder.prepared + 1)
    return builder


def test_no_connection_is_reported_before_retries(builder):
    with pytest.raises(ConnectionError, match="'toy:1' .* 127.0.0.1"):
        download_and_prepare(builder, "toy:1")
    assert not builder.prepared


@pytest.mark.parametrize(
    "name,files",
    [
        ("imagenet2012", ["ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"]),
        ("imagenet2012_real", ["ILSVRC2012_img_val.tar"]),
        ("resisc45", ["rar file"]),
        ("vtab/resisc45", ["rar file"]),
    ],
)
def test_archives_that_are_missing(tmp_path, name, files):
    for _ in range(2):  # without the folder, and with an empty one
        with pytest.raises(ValueError) as error:
            open_dataset(Data(name, data_dir=str(tmp_path)))
        assert all(word in str(error.value) for word in (str(tmp_path / "downloads" / "manual"), *files))
        assert "manual_dir" not in str(error.value) and "\n" not in str(error.value)
        (tmp_path / "downloads" / "manual").mkdir(parents=True, exist_ok=True)


@pytest.mark.parametrize("present", ["toy/1.0.0", "downloads/toy/toy.tgz.INFO", "downloads/manual/toy.tgz"])
def test_what_is_on_the_disk_requires_no_connection(builder, tmp_path, present):
    (tmp_path / present).mkdir(parents=True)
    download_and_prepare(builder, "toy")
    assert builder.prepared == 1
