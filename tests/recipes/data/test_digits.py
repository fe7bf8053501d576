import numpy as np
from sklearn.datasets import load_digits

from keras_vit.recipes.data.digits import SPLITS, Digits


def prepared(data_dir):
    builder = Digits(data_dir=data_dir)
    builder.download_and_prepare()
    return builder


def test_splits_hold_every_image_once(data_dir):
    builder = prepared(data_dir)
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == SPLITS
    assert builder.info.features["label"].names == [str(digit) for digit in range(10)]
    found = [
        (e["image"].tobytes(), int(e["label"])) for name in SPLITS for e in builder.as_dataset(name).as_numpy_iterator()
    ]
    digits = load_digits()
    images = np.round(digits.images * 255 / 16).astype("uint8")
    assert sorted(found) == sorted((image.tobytes(), int(label)) for image, label in zip(images, digits.target))


def test_splits_never_change(data_dir):
    builder = prepared(data_dir)
    labels = {name: [int(e["label"]) for e in builder.as_dataset(name).take(8).as_numpy_iterator()] for name in SPLITS}
    assert labels == {
        "train": [4, 0, 9, 1, 4, 7, 1, 5],
        "validation": [7, 3, 6, 9, 9, 3, 8, 2],
        "test": [5, 2, 2, 1, 9, 0, 4, 0],
    }
    counts = np.bincount([int(e["label"]) for e in builder.as_dataset("train").as_numpy_iterator()])
    assert counts.min() >= 100  # room for 100 labels a class
