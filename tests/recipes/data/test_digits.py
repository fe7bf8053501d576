"""Scikit-learn's digits as a builder of TensorFlow Datasets."""

import numpy as np
from sklearn.datasets import load_digits

from keras_vit.recipes.data.digits import SPLITS, Digits


def test_splits_are_fixed_and_have_every_image_once(data_dir):
    builder = Digits(data_dir=data_dir)
    builder.download_and_prepare()
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == SPLITS
    assert builder.info.features["label"].names == [str(digit) for digit in range(10)]
    pairs = {}
    for name in SPLITS:
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
