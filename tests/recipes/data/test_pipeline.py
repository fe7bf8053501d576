"""Training and evaluation batches of scikit-learn's digits: order, randomness, hosts, replicas and services."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data import (
    count_training_images,
    evaluation_batches,
    open_dataset,
    read_labels,
    training_batches,
    training_pixels,
)
from keras_vit.recipes.recipe import Augment, Data
from keras_vit.recipes.recipe.errors import RecipeError

pytestmark = pytest.mark.slow


@pytest.fixture
def data(data_dir):
    small = {"image_size": 8, "batch_size": 32, "train_split": "train[:250]"}
    return Data(dataset="digits", data_dir=data_dir, crop="none", flip=False, **small)


@pytest.fixture
def dataset(data):
    return open_dataset(data)


def take(dataset, count):
    return [tf.nest.map_structure(np.asarray, batch) for batch in dataset.take(count)]


def sorted_images(images):
    return sorted(image.astype("uint8").tobytes() for image in images)


def assert_same(batch, other):
    for array, same in zip(batch, other, strict=True):
        np.testing.assert_array_equal(array, same)


def test_batches_are_rgb_in_range_with_static_shapes(data, dataset):
    batches = training_batches(replace(data, image_size=12), dataset, seed=0)
    assert batches.element_spec[0].shape == (32, 12, 12, 3)
    ((images, labels),) = take(batches, 1)
    assert images.dtype == np.float32 and images.min() == -1 and 0.9 < images.max() <= 1
    np.testing.assert_array_equal(images[..., 0], images[..., 2])
    assert labels.shape == (32,)
    pixels = take(training_pixels(replace(data, image_size=12), dataset, seed=0), 1)[0][0]
    np.testing.assert_allclose(pixels / 127.5 - 1, images, atol=1e-5)


def test_all_randomness_comes_from_the_seed(data, dataset):
    data = replace(data, crop="inception", flip=True)
    batches = training_batches(data, dataset, seed=1)
    first = take(batches, 3)
    keras.utils.set_random_seed(5)  # neither the global seed matters nor how often the batches were read
    second = take(batches, 3)
    third = take(training_batches(data, dataset, seed=1), 3)
    for batch, *others in zip(first, second, third):
        for other in others:
            assert_same(batch, other)
    ((other_images, _),) = take(training_batches(data, dataset, seed=2), 1)
    assert not np.array_equal(first[0][0], other_images)


@pytest.mark.parametrize(
    "changes",
    [
        {"crop": "inception", "augment": Augment(repeats=3)},
        {"cache": True},
        pytest.param({"labels_per_class": 10}, marks=pytest.mark.extended),
    ],
)
def test_start_step_continues_the_batches_of_a_whole_run(data, dataset, changes):
    # 250 or 100 images: epochs end within batches.
    data = replace(data, batch_size=80, shuffle_images=50, **changes)
    whole = take(training_pixels(data, dataset, 3), 9)
    (batch,) = take(training_pixels(data, dataset, 3, start_step=8), 1)
    assert_same(batch, whole[8])


def test_cache_changes_nothing(data, dataset):
    data = replace(data, crop="inception", flip=True)
    cached, read = (take(training_pixels(replace(data, cache=cache), dataset, 1), 3) for cache in (True, False))
    for batch, same in zip(cached, read):
        assert_same(batch, same)


@pytest.mark.parametrize("changes", [{"augment": Augment(erasing=1.0)}, {"interpolation": "bicubic"}])
def test_pixels_are_clipped_to_their_range(data, dataset, changes):
    data = replace(data, image_size=20, **changes)
    ((pixels, _),) = take(training_pixels(data, dataset, 0), 1)
    ((images, _),) = take(training_batches(data, dataset, 0), 1)
    assert pixels.min() == 0 and pixels.max() == 255 and (images.min() < -1 or images.max() > 1)
    np.testing.assert_allclose(pixels, np.clip(127.5 * (images + 1), 0, 255), atol=1e-3)


def test_an_epoch_has_every_image_once_and_the_next_another_order(data, dataset):
    data = replace(data, batch_size=250)
    (first, labels), (second, _) = take(training_pixels(data, dataset, 0), 2)
    assert sorted(labels) == sorted(read_labels(dataset, data.train_split))
    assert len(np.unique(first.reshape(250, -1), axis=0)) == len(np.unique(second.reshape(250, -1), axis=0)) == 250
    assert not np.array_equal(first, second)
    assert sorted_images(first) == sorted_images(second)


def test_repeated_augmentation_has_copies_with_crops_of_their_own(data, dataset):
    data = replace(data, batch_size=8, crop="none", augment=Augment(repeats=3))
    batches = take(training_pixels(data, dataset, 0), 94)  # 752 of 750 copies
    images = np.concatenate([images for images, _ in batches])[:750].reshape(250, 3, -1)
    np.testing.assert_array_equal(images[:, 0], images[:, 1])
    np.testing.assert_array_equal(images[:, 0], images[:, 2])
    assert len(np.unique(images[:, 0], axis=0)) == 250
    (cropped, labels), *_ = take(training_pixels(replace(data, crop="inception"), dataset, 0), 1)
    assert len(np.unique(cropped.reshape(8, -1), axis=0)) == 8  # also of one image
    assert labels[0] == labels[1] == labels[2] and labels[3] == labels[4] == labels[5]


def test_flip_mirrors_half_of_the_images(data, dataset):
    flipping = replace(data, flip=True, train_split="train[:1]", batch_size=200)
    images = take(training_pixels(flipping, dataset, 0), 1)[0][0]
    plain = take(training_pixels(replace(flipping, flip=False, batch_size=1), dataset, 0), 1)[0][0][0]
    mirrored = (images == plain[:, ::-1]).all(axis=(1, 2, 3))
    assert ((images == plain).all(axis=(1, 2, 3)) ^ mirrored).all()
    assert 0.4 < mirrored.mean() < 0.6


def test_evaluation_has_every_image_once(data, dataset):
    batches = take(evaluation_batches(data, dataset, "test"), 100)
    assert len(batches) == 16 and {images.shape for images, _, _ in batches} == {(32, 8, 8, 3)}
    weights = np.concatenate([weights for _, _, weights in batches])
    labels = np.concatenate([labels for _, labels, _ in batches])
    np.testing.assert_allclose(weights, [512 / 500] * 500 + [0] * 12)
    np.testing.assert_array_equal(labels[:500], read_labels(dataset, "test"))


def test_labels_per_class(data, dataset):
    few = replace(data, labels_per_class=3, batch_size=30)
    assert count_training_images(few, dataset, data.train_split) == 30
    (first, labels), (second, _) = take(training_pixels(few, dataset, seed=4), 2)
    assert (np.bincount(labels) == 3).all()
    assert sorted_images(first) == sorted_images(second)
    other = take(training_pixels(few, dataset, seed=5), 1)[0][0]
    assert sorted_images(first) != sorted_images(other)
    counts = [(weights > 0).sum() for *_, weights in take(evaluation_batches(few, dataset, data.train_split), 40)]
    assert sum(counts) == 250  # evaluation uses all images
    with pytest.raises(ValueError, match="data.labels_per_class=500"):
        training_pixels(replace(data, labels_per_class=500), dataset, seed=0)


def test_each_host_has_its_part_of_each_batch(data, dataset):
    data = replace(data, crop="inception", flip=True)
    whole = take(training_pixels(data, dataset, 2, start_step=3), 2)
    parts = [take(training_pixels(data, dataset, 2, start_step=3, host=(i, 2)), 2) for i in range(2)]
    for step, batch in enumerate(whole):
        assert_same(batch, [np.concatenate(arrays) for arrays in zip(*(part[step] for part in parts))])
    # The second batch of 40 images has 8: the second host has none of them, and still a batch.
    halves = [take(evaluation_batches(data, dataset, "test[:40]", host=(i, 2)), 9) for i in range(2)]
    assert [[(weights > 0).sum() for _, _, weights in half] for half in halves] == [[16, 8], [16, 0]]
    with pytest.raises(RecipeError) as raised:
        training_pixels(data, dataset, 0, host=(0, 3))
    assert raised.value.received == {"data.batch_size": 32} and raised.value.use == ({"data.batch_size": 33},)


@pytest.mark.parametrize(
    "policy", [{"randaugment_layers": 1}, pytest.param({"autoaugment": "imagenet"}, marks=pytest.mark.extended)]
)
def test_augmented_batches_depend_only_on_seed_and_step(data, dataset, policy):
    augment = Augment(**policy, erasing=0.5, mixup_alpha=0.2, cutmix_alpha=1.0)
    data = replace(data, augment=augment, image_size=12)
    whole = take(training_batches(data, dataset, 3), 3)
    tf.random.set_seed(5)
    (batch,) = take(training_batches(data, dataset, 3, start_step=2), 1)
    assert_same(batch, whole[2])
    labels = batch[1]
    assert labels.shape == (32, 10) and labels.dtype == np.float32
    np.testing.assert_allclose(labels.sum(axis=1), 1.0, atol=1e-6)


def test_a_service_prepares_every_image_once_an_epoch(data, dataset):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    address = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address, heartbeat_interval_ms=100))
    data = replace(data, batch_size=250, augment=Augment(mixup_alpha=1e-9))
    local = take(training_batches(data, dataset, 0), 1)[0][0]
    images, labels = take(training_batches(replace(data, service=dispatcher.target), dataset, 0), 1)[0]
    assert sorted(map(bytes, local)) == sorted(map(bytes, images))
    assert labels.shape == (250, 10)
    del worker, dispatcher
