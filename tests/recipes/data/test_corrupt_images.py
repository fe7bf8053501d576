"""Folders of images of any size, some of which cannot be decoded."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import image_names
from PIL import Image

from keras_vit.recipes.data import decoded_images, evaluation_arrays, evaluation_batches, open_dataset, training_batches
from keras_vit.recipes.recipe import Data


def take(dataset, count):
    return [tf.nest.map_structure(np.asarray, batch) for batch in dataset.take(count)]


@pytest.fixture
def folder(tmp_path):
    """4 training images in 2 classes, JPEG and PNG, and 6 test images, of which test/dog/1.png is truncated."""
    random = np.random.default_rng(0)
    for split, count in (("train", 2), ("test", 3)):
        for class_name in ("cat", "dog"):
            path = tmp_path / "pets" / split / class_name
            path.mkdir(parents=True)
            for i in range(count):
                size = random.integers(10, 30, 2)
                image = Image.fromarray(random.integers(0, 256, (*size, 3), "uint8"))
                image.save(path / f"{i}.{'png' if i else 'jpg'}")
    corrupt = tmp_path / "pets" / "test" / "dog" / "1.png"
    corrupt.write_bytes(corrupt.read_bytes()[:60])
    return tmp_path / "pets"


@pytest.mark.slow
def test_a_corrupt_image_is_named_once_and_has_weight_0(folder, capfd):
    data = Data(dataset=f"folder:{folder}", image_size=16, batch_size=4, max_corrupt=0.2)
    dataset = open_dataset(data)
    batches = take(evaluation_batches(data, dataset, "test"), 10)
    assert [images.shape for images, _, _ in batches] == [(4, 16, 16, 3)] * 2
    images, labels = evaluation_arrays(data, dataset, "test")
    assert len(images) == 5 and sorted(labels) == [0, 0, 0, 1, 1]
    printed = capfd.readouterr().err
    assert printed.count(f"Skipping undecodable images: {folder}/test/dog/1.png\n") == 1  # of two epochs
    images, labels = zip(*decoded_images(dataset, "test", 4, 0.2))
    assert [len(batch) for batch in images] == [4, 1] and sorted(np.concatenate(labels)) == [0, 0, 0, 1, 1]
    assert "Skipping" not in capfd.readouterr().err
    with pytest.raises(ValueError, match=r"1 image of 'test' .* 0 .*max_corrupt=0.01"):
        list(decoded_images(dataset, "test", 4))


@pytest.mark.slow
@pytest.mark.parametrize("crop,cache", [("inception", False), ("none", True)])
def test_a_corrupt_image_shifts_no_other(folder, capfd, crop, cache):
    small = {"image_size": 16, "batch_size": 4, "shuffle_images": 6, "max_corrupt": 0.2}
    data = Data(dataset=f"folder:{folder}", train_split="test", crop=crop, cache=cache, **small)
    dataset = open_dataset(data)
    whole = take(training_batches(data, dataset, 0), 6)
    assert "test/dog/1.png" in capfd.readouterr().err
    ((images, labels),) = take(training_batches(data, dataset, 0, start_step=4), 1)
    np.testing.assert_array_equal(images, whole[4][0])
    np.testing.assert_array_equal(labels, whole[4][1])
    # The other images equal those of the same data without a corrupt image.
    valid = folder / "test" / "dog" / "1.png"
    valid.write_bytes((folder / "test" / "dog" / "2.png").read_bytes())
    for (images, _), (fixed, _) in zip(whole, take(training_batches(data, dataset, 0), 6)):
        same = sum((image == fixed).all(axis=(1, 2, 3)).any() for image in images)
        assert same >= 2


def test_too_many_corrupt_images_are_an_error(folder):
    data = Data(dataset=f"folder:{folder}", image_size=16, batch_size=2, max_corrupt=0.1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"More than 10.00% of the images cannot be decoded"):
        take(evaluation_batches(data, open_dataset(data), "test"), 10)
    for file in (folder / "train").glob("*/*"):
        file.write_bytes(b"no image")
    all_corrupt = replace(data, max_corrupt=1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="No image can be decoded"):
        take(training_batches(all_corrupt, open_dataset(all_corrupt), 0), 1)


@pytest.mark.parametrize("cache", [False, True])
def test_a_batch_of_corrupt_images_only_has_the_first_other_image(tmp_path, cache):
    """The batches around it are those of the same data without a corrupt image."""
    (folder := tmp_path / "train" / "cat").mkdir(parents=True)
    for i in range(5):
        Image.new("RGB", (8, 8), (i, i, i)).save(folder / f"{i}.png")
    fields = {"crop": "none", "flip": False, "image_size": 8, "batch_size": 1, "max_corrupt": 0.5, "cache": cache}
    data = Data(dataset=f"folder:{tmp_path}", **fields)
    dataset = open_dataset(data)
    names = image_names(dataset, "train")
    order = [int(Path(name).stem) for name in names]

    def values(start_step=0):
        batches = take(training_batches(data, dataset, 0, start_step), 5 - start_step)
        return [round((float(images.mean()) * 0.5 + 0.5) * 255) for images, _ in batches]

    expected = values()
    assert sorted(expected) == [0, 1, 2, 3, 4]
    Path(names[0]).write_bytes(b"no image")
    assert values() == [order[1] if value == order[0] else value for value in expected]
    start = expected.index(order[0])  # a run that resumes there
    assert values(start) == [order[1], *expected[start + 1 :]]


def test_each_host_compares_with_its_own_part(tmp_path):
    (folder := tmp_path / "test" / "cat").mkdir(parents=True)
    for i in range(12):
        Image.new("RGB", (8, 8), (i, i, i)).save(folder / f"{i:02}.png")
    data = Data(dataset=f"folder:{tmp_path}", train_split="test", image_size=8, batch_size=4, max_corrupt=0.25)
    data = replace(data, shuffle_images=1)
    dataset = open_dataset(data)
    for file in image_names(dataset, "test")[::4]:  # all in the first half of a batch of 4
        Path(file).write_bytes(b"no image")
    take(evaluation_batches(data, dataset, "test"), 3)
    take(evaluation_batches(data, dataset, "test", (1, 2)), 3)
    evaluation = evaluation_batches(data, dataset, "test", (0, 2))
    for batches in (evaluation, training_batches(data, dataset, 0, host=(0, 2))):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"More than 25.00% .* So far:.*3.*of"):
            take(batches, 3)
    # One image of a small part is not too many.
    take(evaluation_batches(replace(data, max_corrupt=0.34), dataset, "test", (0, 2)), 3)
