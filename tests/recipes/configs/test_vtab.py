"""The 19 tasks against google-research/task_adaptation (task_adaptation/data), of which this is a copy in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from images_on_disk import labels_of

from keras_vit.recipes.configs.vtab import GROUPS, TASKS
from keras_vit.recipes.data import count_examples, open_dataset
from keras_vit.recipes.data.datasets import Digits
from keras_vit.recipes.recipe import Data

# Dataset and number of images of its splits; the percentage of the training split that task_adaptation trains on, if
# there is no validation split; the split it tests on.
CLEVR = ("clevr", {"train": 70_000, "validation": 15_000, "test": 15_000})
DSPRITES = ("dsprites", {"train": 737_280})
SMALLNORB = ("smallnorb", {"train": 24_300, "test": 24_300})
DATA = {
    "caltech101": ("caltech101", {"train": 3_059, "test": 6_084}, 90, "test"),
    "cifar100": ("cifar100", {"train": 50_000, "test": 10_000}, 90, "test"),
    "dtd": ("dtd", {"train": 1_880, "validation": 1_880, "test": 1_880}, None, "test"),
    "flowers102": ("oxford_flowers102", {"train": 1_020, "validation": 1_020, "test": 6_149}, None, "test"),
    "pets": ("oxford_iiit_pet", {"train": 3_680, "test": 3_669}, 80, "test"),
    "sun397": ("sun397/tfds", {"train": 76_128, "validation": 10_875, "test": 21_750}, None, "test"),
    "svhn": ("svhn_cropped", {"train": 73_257, "test": 26_032, "extra": 531_131}, 90, "test"),
    "camelyon": ("patch_camelyon", {"train": 262_144, "validation": 32_768, "test": 32_768}, None, "test"),
    "eurosat": ("eurosat/rgb", {"train": 27_000}, 60, "train[80%:]"),
    "resisc45": ("resisc45", {"train": 31_500}, 60, "train[80%:]"),
    "retinopathy": (
        "diabetic_retinopathy_detection/btgraham-300",
        {"sample": 10, "train": 35_126, "validation": 10_906, "test": 42_670},
        None,
        "test",
    ),
    "clevr-count": (*CLEVR, 90, "validation"),
    "clevr-distance": (*CLEVR, 90, "validation"),
    "dmlab": ("dmlab", {"train": 65_550, "validation": 22_628, "test": 22_735}, None, "test"),
    "dsprites-location": (*DSPRITES, 80, "train[90%:]"),
    "dsprites-orientation": (*DSPRITES, 80, "train[90%:]"),
    "kitti-distance": ("kitti", {"train": 6_347, "validation": 423, "test": 711}, None, "test"),
    "smallnorb-azimuth": (*SMALLNORB, None, "test[50%:]"),
    "smallnorb-elevation": (*SMALLNORB, None, "test[50%:]"),
}
# Supplement F of arXiv 1912.11370.
NOT_FLIPPED = {"dsprites-orientation", "smallnorb-azimuth", "dsprites-location"}
NOT_CROPPED = {"clevr-count", "clevr-distance", "dmlab", "kitti-distance", "dsprites-location"}


def image_indices(split, counts):
    """(split name, index) of each image of a split in TensorFlow Datasets' notation."""
    splits = tfds.core.SplitDict(
        [tfds.core.SplitInfo(name=name, shard_lengths=[n], num_bytes=0) for name, n in counts.items()]
    )
    images = []
    for part in tfds.core.ReadInstruction.from_spec(split).to_absolute(splits):
        images += [(part.splitname, index) for index in range(part.from_ or 0, part.to or counts[part.splitname])]
    return images


@pytest.mark.parametrize("name", TASKS)
def test_splits(name):
    task = TASKS[name]
    dataset, counts, percent, test = DATA[name]
    assert task.dataset.partition(":")[0] == dataset
    # task_adaptation: 200 images of the validation split; if there is none, those after the part it trains on; of
    # smallNORB, the first of the test split.
    if percent:
        part, start = "train", counts["train"] * percent // 100
    else:
        part, start = ("validation" if "validation" in counts else "test"), 0
    train800, val200 = [("train", n) for n in range(800)], [(part, n) for n in range(start, start + 200)]
    assert image_indices(task.train800, counts) == train800
    assert image_indices(task.val200, counts) == val200
    assert image_indices(task.train_split, counts) == train800 + val200
    tested = image_indices(task.test_split, counts)
    assert tested == image_indices(test, counts)
    assert not set(tested) & set(train800 + val200)


def test_tasks_match_the_benchmark():
    assert TASKS.keys() == DATA.keys() and len(TASKS) == 19
    groups = [*GROUPS.values()]
    assert [groups.count(group) for group in ("natural", "specialized", "structured")] == [7, 4, 8]
    assert {name for name, task in TASKS.items() if not task.flip} == NOT_FLIPPED
    assert {name for name, task in TASKS.items() if not task.crop} == NOT_CROPPED


def label(name, features):
    """A task's label of an example, computed in a graph as in tf.data."""
    dataset = tf.data.Dataset.from_tensors(features).map(TASKS[name].label)
    assert dataset.element_spec.shape == () and dataset.element_spec.dtype == tf.int64
    return int(next(iter(dataset)))


@pytest.mark.parametrize("count", range(3, 11))
def test_clevr_counts_objects(count):
    assert label("clevr-count", {"objects": {"size": np.zeros(count, np.int64)}}) == count - 3


def test_clevr_distance_is_of_the_nearest_object():
    thresholds = np.array([0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0])
    random = np.random.default_rng(0)
    for nearest in (0.5, 8.0, 8.01, 8.5, 8.9, 9.0, 9.4, 9.99, 10.0, 10.1, 50.0):
        depths = np.append(nearest, nearest + random.uniform(0, 9, 4))
        coordinates = np.stack([random.uniform(0, 5, 5), random.uniform(0, 5, 5), random.permutation(depths)], axis=1)
        expected = np.max(np.where(thresholds - np.float32(nearest) < 0))
        assert label("clevr-distance", {"objects": {"pixel_coords": coordinates.astype("float32")}}) == expected


@pytest.mark.parametrize(
    "types,distances,expected",
    [
        ([3, 0, 7], [1.0, 7.9, 2.0], 0),  # pedestrians are not vehicles
        ([0], [8.0], 0),
        ([1, 2], [8.1, 30.0], 1),
        ([0, 1], [20.1, 20.0], 1),
        ([2], [20.5], 2),
        ([3, 4, 5, 6, 7], [1.0, 2.0, 3.0, 4.0, 5.0], 3),
        ([], [], 3),
    ],
)
def test_kitti_distance_is_of_the_nearest_vehicle(types, distances, expected):
    location = np.zeros((len(types), 3), "float32")
    location[:, 2] = distances
    objects = {"type": np.array(types, np.int64), "location": location}
    # task_adaptation's thresholds; 1,000 m means no vehicle.
    thresholds = np.array([-100.0, 8.0, 20.0, 999.0])
    vehicles = [d for t, d in zip(types, distances) if t < 3]
    assert expected == np.max(np.where(thresholds - min([*vehicles, 1000.0]) < 0))
    assert label("kitti-distance", {"objects": objects}) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,key,values", [("location", "label_x_position", 32), ("orientation", "label_orientation", 40)]
)
def test_dsprites_groups_consecutive_values(name, key, values):
    labels = [label(f"dsprites-{name}", {key: np.int64(value)}) for value in range(values)]
    np.testing.assert_array_equal(labels, np.floor_divide(np.arange(values, dtype="float32"), values / 16))
    assert set(labels) == set(range(16))


def test_other_labels_are_features():
    features = {"label_azimuth": np.int64(11), "label_elevation": np.int64(3)}
    assert (label("smallnorb-azimuth", features), label("smallnorb-elevation", features)) == (11, 3)
    others = {name for name, task in TASKS.items() if task.label is None}
    assert others == {name for name in TASKS if not name.startswith(("clevr", "kitti", "dsprites", "smallnorb"))}


@pytest.mark.parametrize("name", TASKS)
def test_classes_match_the_data_set(name, tmp_path):
    task = TASKS[name]
    features = tfds.builder(task.dataset, data_dir=tmp_path).info.features
    if task.label is None:
        assert features["label"].num_classes == task.num_classes and not task.class_names
    else:
        assert len(task.class_names) == len(set(task.class_names)) == task.num_classes


def test_open_dataset_returns_the_labels_of_the_task(monkeypatch, data_dir):
    """Digits in the place of the data set, which is not here."""
    opened, digits = [], open_dataset(Data(dataset="digits", data_dir=data_dir))
    builder = Digits(data_dir=data_dir)
    monkeypatch.setattr("keras_vit.recipes.data.datasets.prepare_builder", lambda *x: opened.append(x[0]) or builder)
    task = open_dataset(Data(dataset="vtab/cifar100"))
    assert opened == ["cifar100:3.*.*"] and task.name == "vtab/cifar100"
    assert labels_of(task, "train[:3]") == labels_of(digits, "train[:3]")
    parity = replace(
        TASKS["dsprites-location"], label=lambda example: example["label"] % 2, class_names=("even", "odd")
    )
    monkeypatch.setitem(TASKS, "dsprites-location", parity)
    task = open_dataset(Data(dataset="vtab/dsprites-location"))
    assert list(task.class_names) == ["even", "odd"] and count_examples(task, "train[:2]+validation[:1]") == 3
    assert labels_of(task, "train[:2]+test") == [label % 2 for label in labels_of(digits, "train[:2]+test")]
