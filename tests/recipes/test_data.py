from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.recipes.data import evaluation_batches, open_dataset, training_batches, training_pixels
from keras_vit.recipes.recipe import Data


@pytest.fixture
def data(data_dir):
    return Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=32, min_crop_area=1.0, flip=False)


@pytest.fixture
def builder(data):
    return open_dataset(data)


def take(dataset, count):
    return [tf.nest.map_structure(np.asarray, batch) for batch in dataset.take(count)]


def test_batches_are_rgb_in_range_with_static_shapes(data, builder):
    dataset = training_batches(replace(data, image_size=12), builder, seed=0)
    assert dataset.element_spec[0].shape == (32, 12, 12, 3)
    ((images, labels),) = take(dataset, 1)
    assert images.dtype == np.float32 and images.min() == -1 and 0.9 < images.max() <= 1
    np.testing.assert_array_equal(images[..., 0], images[..., 2])
    assert labels.shape == (32,)
    pixels = take(training_pixels(replace(data, image_size=12), builder, seed=0), 1)[0][0]
    np.testing.assert_allclose(pixels / 127.5 - 1, images, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"min_crop_area": 0.3, "flip": True}, {"cache": True, "min_crop_area": 0.5}])
def test_everything_random_comes_from_the_seed(data, builder, changes):
    data = replace(data, **changes)
    first, again, other = (take(training_batches(data, builder, seed), 3) for seed in (1, 1, 2))
    for (images, labels), (same, same_labels) in zip(first, again):
        np.testing.assert_array_equal(images, same)
        np.testing.assert_array_equal(labels, same_labels)
    assert not np.array_equal(first[0][0], other[0][0])


@pytest.mark.parametrize("global_seed", [0, 5])
def test_order_depends_on_nothing_else(data, builder, global_seed):
    reference = take(training_pixels(data, builder, 0), 2)
    keras.utils.set_random_seed(global_seed)
    dataset = training_pixels(data, builder, 0)
    next(iter(dataset))  # nor on how often it was read before
    for (images, _), (same, _) in zip(take(dataset, 2), reference):
        np.testing.assert_array_equal(images, same)


@pytest.mark.parametrize("changes", [{"min_crop_area": 0.3, "flip": True}, {"cache": True}, {"labels_per_class": 10}])
def test_batches_from_a_step_on_are_those_of_the_whole_run(data, builder, changes):
    data = replace(data, batch_size=200, shuffle_images=50, **changes)  # 1,097 pictures: epochs end within batches
    whole = take(training_pixels(data, builder, 3), 9)
    for start in (1, 5, 8):
        ((images, labels),) = take(training_pixels(data, builder, 3, start_step=start), 1)
        np.testing.assert_array_equal(images, whole[start][0])
        np.testing.assert_array_equal(labels, whole[start][1])


@pytest.mark.parametrize("changes", [{"min_crop_area": 0.3, "flip": True}, {}])
def test_a_cache_changes_nothing(data, builder, changes):
    cached, read = (take(training_pixels(replace(data, cache=x, **changes), builder, 1), 3) for x in (True, False))
    for (images, _), (same, _) in zip(cached, read):
        np.testing.assert_array_equal(images, same)


def test_an_epoch_shows_every_picture_once_and_the_next_in_another_order(data, builder):
    data = replace(data, batch_size=1097)
    (first, labels), (second, _) = take(training_pixels(data, builder, 0), 2)
    assert np.bincount(labels).sum() == 1097
    assert len(np.unique(first.reshape(1097, -1), axis=0)) == len(np.unique(second.reshape(1097, -1), axis=0)) > 1090
    assert not np.array_equal(first, second)
    assert sorted(map(bytes, first.astype("uint8"))) == sorted(map(bytes, second.astype("uint8")))


def test_crops_keep_at_least_their_area_and_change_every_time(data, builder):
    whole = Data(dataset="digits", data_dir=data.data_dir, image_size=8, batch_size=16, min_crop_area=0.3, flip=False)
    one_picture = replace(whole, train_split="train[:1]", cache=True)
    images = take(training_pixels(one_picture, builder, 0), 1)[0][0]
    assert len(np.unique(images.reshape(16, -1), axis=0)) > 10


def test_flip_mirrors_half_of_the_pictures(data, builder):
    flipping = replace(data, flip=True, train_split="train[:1]", batch_size=200)
    images = take(training_pixels(flipping, builder, 0), 1)[0][0]
    plain = take(training_pixels(replace(flipping, flip=False), builder, 0), 1)[0][0][0]
    mirrored = (images == plain[:, ::-1]).all(axis=(1, 2, 3))
    assert ((images == plain).all(axis=(1, 2, 3)) ^ mirrored).all()
    assert 0.4 < mirrored.mean() < 0.6


def test_evaluation_counts_every_picture_once(data, builder):
    batches = take(evaluation_batches(data, builder, "test"), 100)
    assert len(batches) == 16 and {images.shape for images, _, _ in batches} == {(32, 8, 8, 3)}
    weights = np.concatenate([weights for _, _, weights in batches])
    labels = np.concatenate([labels for _, labels, _ in batches])
    np.testing.assert_array_equal(weights, [1] * 500 + [0] * 12)
    expected = [int(example["label"]) for example in builder.as_dataset("test").as_numpy_iterator()]
    np.testing.assert_array_equal(labels[:500], expected)


def test_padding_does_not_enter_the_accuracy(data, builder, toy):
    model = toy(image_size=8, num_classes=10)  # a head of zeros: always class 0
    model.compile(loss="sparse_categorical_crossentropy", weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()])
    accuracy = model.evaluate(evaluation_batches(data, builder, "test"), verbose=0)[1]
    labels = [int(example["label"]) for example in builder.as_dataset("test").as_numpy_iterator()]
    assert accuracy == pytest.approx(labels.count(0) / 500, abs=1e-6)


def test_labels_per_class(data, builder):
    few = replace(data, labels_per_class=3, batch_size=30)
    (first, labels), (second, _) = take(training_pixels(few, builder, seed=4), 2)
    assert (np.bincount(labels) == 3).all()
    assert sorted(map(bytes, first.astype("uint8"))) == sorted(map(bytes, second.astype("uint8")))
    other = take(training_pixels(few, builder, seed=5), 1)[0][0]
    assert sorted(map(bytes, first.astype("uint8"))) != sorted(map(bytes, other.astype("uint8")))
    with pytest.raises(ValueError, match="labels_per_class=500, but class '0' has"):
        training_pixels(replace(data, labels_per_class=500), builder, seed=0)


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for split, count in (("train", 3), ("test", 2)):
        for name in ("cat", "dog"):
            place = tmp_path / "pets" / split / name
            place.mkdir(parents=True)
            for number in range(count):
                size = random.integers(10, 30, 2)
                Image.fromarray(random.integers(0, 256, (*size, 3), "uint8")).save(place / f"{number}.jpg")
    return tmp_path / "pets"


def test_folder_of_pictures_of_any_size(folder):
    data = Data(dataset=f"folder:{folder}", image_size=16, batch_size=4)
    builder = open_dataset(data)
    images, labels = take(training_batches(data, builder, 0), 1)[0]
    assert images.shape == (4, 16, 16, 3) and set(labels) <= {0, 1}
    ((images, labels, weights),) = take(evaluation_batches(data, builder, "test"), 10)
    np.testing.assert_array_equal(sorted(labels), [0, 0, 1, 1])
    assert weights.sum() == 4


def test_errors_say_how_to_mend_them(data, builder, tmp_path):
    with pytest.raises(ValueError, match=r"/path/<split>/<class>/<picture>"):
        open_dataset(Data(dataset=f"folder:{tmp_path}"))
    with pytest.raises(ValueError, match="knows no data set 'no_such_data'"):
        open_dataset(Data(dataset="no_such_data", data_dir=str(tmp_path)))
    with pytest.raises(ValueError, match="No split 'dev' in digits. Splits: train, validation, test"):
        evaluation_batches(data, builder, "dev")
    with pytest.raises(ValueError, match="No split 'dev'"):
        training_pixels(replace(data, train_split="dev"), builder, 0)
