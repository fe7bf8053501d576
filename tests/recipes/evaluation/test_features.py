from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import jpeg

from keras_vit.recipes.data import open_dataset, skipped_images
from keras_vit.recipes.evaluation.features import cache_folder, extract_features
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
def batch_sizes(model, monkeypatch):
    """Sizes of the batches for which the model computes features."""
    calls, features = [], model.features
    monkeypatch.setattr(model, "features", lambda images: (calls.append(len(images)), features(images))[1])
    return calls


@pytest.mark.slow
def test_features_are_those_of_the_model_in_order(model, digits):
    found, labels = extract_features(model, digits, "test[:10]", batch_size=4)
    images, expected = zip(*((image, label) for image, label in _decoded(digits, "test[:10]")))
    np.testing.assert_allclose(found, model.features(model.preprocess(list(images))), atol=1e-5)
    np.testing.assert_array_equal(labels, expected)
    assert found.dtype == "float32" and labels.dtype == "int64"


def _decoded(dataset, split):
    for _, image, label in dataset.read(split).as_numpy_iterator():
        yield np.repeat(tf.io.decode_image(image).numpy(), 3, axis=-1)[..., :3], label


def test_images_must_have_labels(model, digits):
    def read(split):
        return digits.read(split).map(lambda name, image, label: (name, image, -tf.ones_like(label)))

    with pytest.raises(ValueError, match=r"Each image of 'test\[:10\]' of digits must have one label"):
        extract_features(model, replace(digits, read=read), "test[:10]")


def test_features_are_computed_once(model, digits, batch_sizes):
    first = extract_features(model, digits, "test[:10]", batch_size=4)
    again = extract_features(model, digits, "test[:10]", batch_size=7)
    assert batch_sizes == [4, 4, 2] and len(list(cache_folder().iterdir())) == 1
    for a, b in zip(first, again):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_other_images_and_other_weights_are_not_cached(model, digits, batch_sizes):
    extract_features(model, digits, "test[:10]")
    extract_features(model, digits, "test[:10]", indices=[1, 3])
    extract_features(model, digits, "test[:9]")
    model.encoder.norm.beta.assign_add(model.encoder.norm.beta * 0 + 1)
    moved, _ = extract_features(model, digits, "test[:10]")
    assert batch_sizes == [10, 2, 9, 10]
    np.testing.assert_allclose(moved, model.features(model.preprocess([x for x, _ in _decoded(digits, "test[:10]")])))


def test_changed_image_in_a_folder_is_noticed(model, tmp_path, batch_sizes):
    from PIL import Image

    for name in ("cat", "dog"):
        folder = tmp_path / "images" / "test" / name
        folder.mkdir(parents=True)
        Image.new("RGB", (9, 9), "red").save(folder / "a.png")
    dataset = open_dataset(Data(dataset=f"folder:{tmp_path / 'images'}"))
    before, _ = extract_features(model, dataset, "test")
    Image.new("RGB", (9, 9), "blue").save(folder / "a.png")
    after, labels = extract_features(model, dataset, "test")
    assert batch_sizes == [2, 2] and sorted(labels) == [0, 1]
    np.testing.assert_array_equal(before[labels == 0], after[labels == 0])
    assert np.abs(before[labels == 1] - after[labels == 1]).max() > 1e-3


def test_corrupt_images_are_skipped_and_named_with_cached_features_too(model, tmp_path, batch_sizes, capsys):
    for name, content in {"cat/a": jpeg(9), "cat/b": b"no image", "dog/a": jpeg(99), "dog/b": jpeg(200)}.items():
        (tmp_path / "images" / "test" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / "test" / f"{name}.jpg").write_bytes(content)
    dataset = open_dataset(Data(dataset=f"folder:{tmp_path / 'images'}"))
    for _ in range(2):
        skipped_images._named.clear()
        features, labels = extract_features(model, dataset, "test", max_corrupt=0.25)
        assert capsys.readouterr().err == f"Skipping undecodable images: {tmp_path}/images/test/cat/b.jpg\n"
        assert features.shape == (3, 12) and labels.tolist() == [
            label for name, _, label in dataset.read("test").as_numpy_iterator() if b"cat/b" not in name
        ]
    assert batch_sizes == [3]
    for file in tmp_path.glob("images/test/*/*"):
        file.write_bytes(b"no image")
    assert extract_features(model, dataset, "test", max_corrupt=1.0)[0].shape == (0, 0)


def test_model_must_pool(trained_toy, digits):
    with pytest.raises(ValueError, match="the model must pool"):
        extract_features(trained_toy(image_size=8, patch_size=2, pooling="none"), digits, "test[:3]")
    assert not cache_folder().exists()


def test_features_must_be_finite(model, digits):
    model.encoder.norm.beta.assign([np.nan] * 12)
    with pytest.raises(FloatingPointError, match="The model's features contain NaN or infinity"):
        extract_features(model, digits, "test[:3]")
    assert not cache_folder().exists()


@pytest.mark.parametrize("size", [0, -2])
def test_batch_size_must_be_positive(model, digits, size):
    with pytest.raises(ValueError, match=f"`batch_size` must be at least 1. Received: {size}"):
        extract_features(model, digits, "test[:3]", size)


def test_features_without_a_cache_that_can_be_used(model, digits, batch_sizes, tmp_path, monkeypatch, caplog):
    expected, _ = extract_features(model, digits, "test[:2]")
    (file,) = cache_folder().iterdir()
    file.write_bytes(file.read_bytes()[:-30])  # damaged: computed again, and replaced
    for _ in range(2):
        np.testing.assert_array_equal(extract_features(model, digits, "test[:2]")[0], expected)
    assert batch_sizes == [2, 2]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file"))  # nothing can be written below a file
    np.testing.assert_array_equal(extract_features(model, digits, "test[:2]")[0], expected)
    assert "Features are computed again next time: " in caplog.text
