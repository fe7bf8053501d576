"""Scikit-learn's digits as a builder of TensorFlow Datasets."""

import numpy as np
from sklearn.datasets import load_digits

from keras_vit.recipes.data.digits import SPLITS, Digits


def prepare(data_dir):
    builder = Digits(data_dir=data_dir)
    builder.download_and_prepare()
    return builder


def test_splits_have_every_image_once(data_dir):
    builder = prepare(data_dir)
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == SPLITS
    assert builder.info.features["label"].names == [str(digit) for digit in range(10)]
    examples = [example for name in SPLITS for example in builder.as_dataset(name).as_numpy_iterator()]
    pairs = [(example["image"].tobytes(), int(example["label"])) for example in examples]
    digits = load_digits()
    images = np.round(digits.images * 255 / 16).astype("uint8")
    assert sorted(pairs) == sorted((image.tobytes(), int(label)) for image, label in zip(images, digits.target))


def test_splits_are_fixed(data_dir):
    builder = prepare(data_dir)
    labels = {name: [int(e["label"]) for e in builder.as_dataset(name).take(8).as_numpy_iterator()] for name in SPLITS}
    assert labels == {
        "train": [4, 0, 9, 1, 4, 7, 1, 5],
        "validation": [7, 3, 6, 9, 9, 3, 8, 2],
        "test": [5, 2, 2, 1, 9, 0, 4, 0],
    }
    counts = np.bincount([int(e["label"]) for e in builder.as_dataset("train").as_numpy_iterator()])
    assert counts.min() >= 100  # enough for labels_per_class=100
