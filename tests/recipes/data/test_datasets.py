"""Opening datasets of TensorFlow Datasets and VTAB-1k by name."""

import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from images_on_disk import image_names, labels_of

from keras_vit.recipes.data import class_names, count_examples, decoded_images, evaluation_arrays, open_dataset
from keras_vit.recipes.data.datasets import from_builder
from keras_vit.recipes.data.digits import SPLITS
from keras_vit.recipes.recipe import Data


def test_digits(data_dir):
    dataset = open_dataset(Data(dataset="digits", data_dir=data_dir))
    assert dataset.splits == SPLITS and class_names(dataset) == [str(digit) for digit in range(10)]
    assert count_examples(dataset, "train[:50%]+test[-7:]") == 548 + 7
    assert image_names(dataset, "test[3:5]") == ["test[3:5] image 0", "test[3:5] image 1"]
    for split in ("dev", r"train[:9999]"):
        with pytest.raises(ValueError, match=re.escape(f"'{split}'")):
            count_examples(dataset, split)


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
    assert labels_of(dataset, "validation") == expected and class_names(dataset) == ["a", "b", "c"]
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


def test_a_label_function_replaces_the_feature(real):
    dataset = from_builder(real, "task", lambda example: tf.size(example["real_label"]), ("none", "one", "two"), 150)
    assert labels_of(dataset, "validation") == [0, 1, 2, 1]
    images, _ = next(decoded_images(dataset, "validation", 4))
    assert images[3].max() == 150  # 255 // 150 is 1


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
