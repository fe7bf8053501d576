from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.evaluation.features import cache_folder, features_of
from keras_vit.recipes.recipe import Data


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))


@pytest.fixture
def digits(data_dir):
    return open_dataset(Data(dataset="digits", data_dir=data_dir))


@pytest.fixture
def model(trained_toy):
    return trained_toy(image_size=8, patch_size=2, num_classes=10)


@pytest.fixture
def computed(model, monkeypatch):
    """The number of images in each call of the model's features."""
    calls, features = [], model.features
    monkeypatch.setattr(model, "features", lambda images: (calls.append(len(images)), features(images))[1])
    return calls


def test_features_are_the_models_in_order(model, digits):
    found, labels = features_of(model, digits, "test[:10]", batch_size=4)
    images, answers = zip(*((image, label) for image, label in _decoded(digits, "test[:10]")))
    np.testing.assert_allclose(found, model.features(model.preprocess(list(images))), atol=1e-5)
    np.testing.assert_array_equal(labels, answers)
    assert found.dtype == "float32" and labels.dtype == "int64"


def _decoded(dataset, split):
    for _, image, label in dataset.read(split).as_numpy_iterator():
        yield np.repeat(tf.io.decode_image(image).numpy(), 3, axis=-1)[..., :3], label


def test_images_without_labels_are_refused(model, digits):
    def read(split):
        return digits.read(split).map(lambda name, image, label: (name, image, -tf.ones_like(label)))

    with pytest.raises(ValueError, match=r"Each image of 'test\[:10\]' of digits needs one label"):
        features_of(model, replace(digits, read=read), "test[:10]")


def test_they_are_computed_once(model, digits, computed):
    first = features_of(model, digits, "test[:10]", batch_size=4)
    again = features_of(model, digits, "test[:10]", batch_size=7)
    assert computed == [4, 4, 2] and len(list(cache_folder().iterdir())) == 1
    for a, b in zip(first, again):
        np.testing.assert_array_equal(a, b)


def test_other_images_and_other_weights_are_computed(model, digits, computed):
    features_of(model, digits, "test[:10]")
    features_of(model, digits, "test[:10]", numbers=[1, 3])
    features_of(model, digits, "test[:9]")
    model.encoder.norm.beta.assign_add(model.encoder.norm.beta * 0 + 1)
    moved, _ = features_of(model, digits, "test[:10]")
    assert computed == [10, 2, 9, 10]
    np.testing.assert_allclose(moved, model.features(model.preprocess([x for x, _ in _decoded(digits, "test[:10]")])))


def test_a_changed_image_of_a_folder_is_seen(model, tmp_path, computed):
    from PIL import Image

    for name in ("cat", "dog"):
        folder = tmp_path / "images" / "test" / name
        folder.mkdir(parents=True)
        Image.new("RGB", (9, 9), "red").save(folder / "a.png")
    dataset = open_dataset(Data(dataset=f"folder:{tmp_path / 'images'}"))
    before, _ = features_of(model, dataset, "test")
    Image.new("RGB", (9, 9), "blue").save(folder / "a.png")
    after, labels = features_of(model, dataset, "test")
    assert computed == [2, 2] and sorted(labels) == [0, 1]
    np.testing.assert_array_equal(before[labels == 0], after[labels == 0])
    assert np.abs(before[labels == 1] - after[labels == 1]).max() > 1e-3


def test_a_model_that_does_not_pool(trained_toy, digits):
    with pytest.raises(ValueError, match="of a model that pools"):
        features_of(trained_toy(image_size=8, patch_size=2, pooling="none"), digits, "test[:3]")
    assert not cache_folder().exists()


@pytest.mark.parametrize("size", [0, -2])
def test_batches_have_images(model, digits, size):
    with pytest.raises(ValueError, match=f"`batch_size` must be at least 1. Received: {size}"):
        features_of(model, digits, "test[:3]", size)
