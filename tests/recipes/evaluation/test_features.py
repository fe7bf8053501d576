from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import jpeg

from keras_vit.recipes.data import corrupt_images, decoded_images, open_dataset
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
    return trained_toy(image_size=8, patch_size=2, num_classes=10, depth=1)


@pytest.fixture
def batch_sizes(model, monkeypatch):
    """Sizes of the batches for which the model computes features."""
    calls, features = [], model.features
    monkeypatch.setattr(model, "features", lambda images: (calls.append(len(images)), features(images))[1])
    return calls


def image_folder(tmp_path, contents):
    for name, content in contents.items():
        (tmp_path / "images" / "test" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / "test" / name).write_bytes(content)
    return open_dataset(Data(dataset=f"folder:{tmp_path / 'images'}"))


@pytest.mark.slow
def test_features_are_those_of_the_model_and_computed_once(model, digits, batch_sizes):
    features, labels = extract_features(model, digits, "test[:10]", batch_size=4)
    stated = replace(model.preprocessing, origin="file")  # the same numbers
    again = extract_features(model, digits, "test[:10]", batch_size=7, preprocessing=stated)
    assert batch_sizes == [4, 4, 2] and len(list(cache_folder().iterdir())) == 1
    images, expected = next(decoded_images(digits, "test[:10]", 10))
    np.testing.assert_allclose(features, model.features(model.preprocess(images)), atol=1e-5)
    np.testing.assert_array_equal(labels, expected)
    assert features.dtype == "float32" and labels.dtype == "int64"
    np.testing.assert_array_equal(again[0], features)
    np.testing.assert_array_equal(again[1], labels)
    batch_sizes.clear()
    some, _ = extract_features(model, digits, "test[:10]", indices=[1, 3])
    np.testing.assert_allclose(some, features[[1, 3]], atol=1e-5)
    extract_features(model, digits, "test[:9]")
    model.encoder.norm.beta.assign_add(model.encoder.norm.beta * 0 + 1)
    moved, _ = extract_features(model, digits, "test[:10]")
    assert batch_sizes == [2, 9, 10]
    np.testing.assert_allclose(moved, model.features(model.preprocess(images)), atol=1e-5)


def test_changed_image_in_a_folder_is_noticed(model, tmp_path, batch_sizes):
    dataset = image_folder(tmp_path, {"cat/a.jpg": jpeg(9), "dog/a.jpg": jpeg(9)})
    before, _ = extract_features(model, dataset, "test")
    (tmp_path / "images" / "test" / "dog" / "a.jpg").write_bytes(jpeg(200))
    after, labels = extract_features(model, dataset, "test")
    assert batch_sizes == [2, 2] and sorted(labels) == [0, 1]
    np.testing.assert_array_equal(before[labels == 0], after[labels == 0])
    assert np.abs(before[labels == 1] - after[labels == 1]).max() > 1e-3


def test_corrupt_images_are_skipped_and_named_with_cached_features_too(model, tmp_path, batch_sizes, capsys):
    contents = {"cat/a.jpg": jpeg(9), "cat/b.jpg": b"no image", "dog/a.jpg": jpeg(99), "dog/b.jpg": jpeg(200)}
    dataset = image_folder(tmp_path, contents)
    order = [(name, label) for name, _, label in dataset.read("test").as_numpy_iterator() if b"cat/b" not in name]
    for _ in range(2):
        corrupt_images._named.clear()
        features, labels = extract_features(model, dataset, "test", max_corrupt=0.25)
        assert f"{tmp_path}/images/test/cat/b.jpg\n" in capsys.readouterr().err
        assert features.shape == (3, 12) and labels.tolist() == [label for _, label in order]
    assert batch_sizes == [3]
    image_folder(tmp_path, dict.fromkeys(contents, b"no image"))
    assert extract_features(model, dataset, "test", max_corrupt=1.0)[0].shape == (0, 0)


def test_invalid_arguments_leave_no_cache(model, trained_toy, digits):
    def unlabeled(split):
        return digits.read(split).map(lambda name, image, label: (name, image, -tf.ones_like(label)))

    unpooled = trained_toy(image_size=8, patch_size=2, pooling="none", depth=1)
    for arguments, message in (
        ((model, replace(digits, read=unlabeled), "test[:10]"), "one label"),
        ((unpooled, digits, "test[:3]"), "must pool"),
        ((model, digits, "test[:3]", 0), "`batch_size` .* Received: 0"),
        ((model, digits, "test[:3]", -2), "`batch_size` .* Received: -2"),
    ):
        with pytest.raises(ValueError, match=message):
            extract_features(*arguments)
    model.encoder.norm.beta.assign([np.nan] * 12)
    with pytest.raises(FloatingPointError, match="NaN"):
        extract_features(model, digits, "test[:3]")
    assert not cache_folder().exists()


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
    assert "computed again next time" in caplog.text
