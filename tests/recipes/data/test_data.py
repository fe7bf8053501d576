from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data import (
    evaluation_batches,
    open_dataset,
    training_batches,
    training_pixels,
)
from keras_vit.recipes.data.digits import Digits
from keras_vit.recipes.recipe import Augment, Data


@pytest.fixture
def data(data_dir):
    return Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=32, crop="none", flip=False)


@pytest.fixture
def dataset(data):
    return open_dataset(data)


def labels_of_test(data):
    examples = Digits(data_dir=data.data_dir).as_dataset("test").as_numpy_iterator()
    return [int(example["label"]) for example in examples]


def take(dataset, count):
    return [tf.nest.map_structure(np.asarray, batch) for batch in dataset.take(count)]


def test_batches_are_rgb_in_range_with_static_shapes(data, dataset):
    batches = training_batches(replace(data, image_size=12), dataset, seed=0)
    assert batches.element_spec[0].shape == (32, 12, 12, 3)
    ((images, labels),) = take(batches, 1)
    assert images.dtype == np.float32 and images.min() == -1 and 0.9 < images.max() <= 1
    np.testing.assert_array_equal(images[..., 0], images[..., 2])
    assert labels.shape == (32,)
    pixels = take(training_pixels(replace(data, image_size=12), dataset, seed=0), 1)[0][0]
    np.testing.assert_allclose(pixels / 127.5 - 1, images, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"crop": "inception", "flip": True}, {"cache": True, "crop": "inception"}])
def test_everything_random_comes_from_the_seed(data, dataset, changes):
    data = replace(data, **changes)
    first, again, other = (take(training_batches(data, dataset, seed), 3) for seed in (1, 1, 2))
    for (images, labels), (same, same_labels) in zip(first, again):
        np.testing.assert_array_equal(images, same)
        np.testing.assert_array_equal(labels, same_labels)
    assert not np.array_equal(first[0][0], other[0][0])


@pytest.mark.parametrize("global_seed", [0, 5])
def test_order_depends_on_nothing_else(data, dataset, global_seed):
    reference = take(training_pixels(data, dataset, 0), 2)
    keras.utils.set_random_seed(global_seed)
    pixels = training_pixels(data, dataset, 0)
    next(iter(pixels))  # nor on how often it was read before
    for (images, _), (same, _) in zip(take(pixels, 2), reference):
        np.testing.assert_array_equal(images, same)


@pytest.mark.parametrize("changes", [{"crop": "inception", "flip": True}, {"cache": True}, {"labels_per_class": 10}])
def test_batches_from_a_step_on_are_those_of_the_whole_run(data, dataset, changes):
    data = replace(data, batch_size=200, shuffle_images=50, **changes)  # 1,097 images: epochs end within batches
    whole = take(training_pixels(data, dataset, 3), 9)
    for start in (1, 5, 8):
        ((images, labels),) = take(training_pixels(data, dataset, 3, start_step=start), 1)
        np.testing.assert_array_equal(images, whole[start][0])
        np.testing.assert_array_equal(labels, whole[start][1])


@pytest.mark.parametrize("changes", [{"crop": "inception", "flip": True}, {}])
def test_a_cache_changes_nothing(data, dataset, changes):
    cached, read = (take(training_pixels(replace(data, cache=x, **changes), dataset, 1), 3) for x in (True, False))
    for (images, _), (same, _) in zip(cached, read):
        np.testing.assert_array_equal(images, same)


@pytest.mark.parametrize("changes", [{"augment": Augment(erasing=1.0)}, {"interpolation": "bicubic"}])
def test_pixels_stay_in_their_range(data, dataset, changes):
    data = replace(data, image_size=20, **changes)
    ((pixels, _),) = take(training_pixels(data, dataset, 0), 1)
    ((scaled, _),) = take(training_batches(data, dataset, 0), 1)
    assert pixels.min() == 0 and pixels.max() == 255 and (scaled.min() < -1 or scaled.max() > 1)
    np.testing.assert_allclose(pixels, np.clip(127.5 * (scaled + 1), 0, 255), atol=1e-3)


def test_an_epoch_shows_every_image_once_and_the_next_in_another_order(data, dataset):
    data = replace(data, batch_size=1097)
    (first, labels), (second, _) = take(training_pixels(data, dataset, 0), 2)
    assert np.bincount(labels).sum() == 1097
    assert len(np.unique(first.reshape(1097, -1), axis=0)) == len(np.unique(second.reshape(1097, -1), axis=0)) > 1090
    assert not np.array_equal(first, second)
    assert sorted(map(bytes, first.astype("uint8"))) == sorted(map(bytes, second.astype("uint8")))


def test_crops_keep_at_least_their_area_and_change_every_time(data, dataset):
    one_image = replace(data, batch_size=16, crop="inception", train_split="train[:1]", cache=True)
    images = take(training_pixels(one_image, dataset, 0), 1)[0][0]
    assert len(np.unique(images.reshape(16, -1), axis=0)) > 10


def test_flip_mirrors_half_of_the_images(data, dataset):
    flipping = replace(data, flip=True, train_split="train[:1]", batch_size=200)
    images = take(training_pixels(flipping, dataset, 0), 1)[0][0]
    plain = take(training_pixels(replace(flipping, flip=False), dataset, 0), 1)[0][0][0]
    mirrored = (images == plain[:, ::-1]).all(axis=(1, 2, 3))
    assert ((images == plain).all(axis=(1, 2, 3)) ^ mirrored).all()
    assert 0.4 < mirrored.mean() < 0.6


def test_evaluation_counts_every_image_once(data, dataset):
    batches = take(evaluation_batches(data, dataset, "test"), 100)
    assert len(batches) == 16 and {images.shape for images, _, _ in batches} == {(32, 8, 8, 3)}
    weights = np.concatenate([weights for _, _, weights in batches])
    labels = np.concatenate([labels for _, labels, _ in batches])
    np.testing.assert_allclose(weights, [512 / 500] * 500 + [0] * 12)
    expected = [
        int(example["label"]) for example in Digits(data_dir=data.data_dir).as_dataset("test").as_numpy_iterator()
    ]
    np.testing.assert_array_equal(labels[:500], expected)


def test_padding_does_not_enter_the_accuracy(data, dataset, toy):
    model = toy(image_size=8, num_classes=10)  # a head of zeros: always class 0
    model.compile(loss="sparse_categorical_crossentropy", weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()])
    accuracy = model.evaluate(evaluation_batches(data, dataset, "test"), verbose=0)[1]
    labels = [
        int(example["label"]) for example in Digits(data_dir=data.data_dir).as_dataset("test").as_numpy_iterator()
    ]
    assert accuracy == pytest.approx(labels.count(0) / 500, abs=1e-6)


def test_labels_per_class(data, dataset):
    few = replace(data, labels_per_class=3, batch_size=30)
    (first, labels), (second, _) = take(training_pixels(few, dataset, seed=4), 2)
    assert (np.bincount(labels) == 3).all()
    assert sorted(map(bytes, first.astype("uint8"))) == sorted(map(bytes, second.astype("uint8")))
    other = take(training_pixels(few, dataset, seed=5), 1)[0][0]
    assert sorted(map(bytes, first.astype("uint8"))) != sorted(map(bytes, other.astype("uint8")))
    counts = [(weights > 0).sum() for *_, weights in take(evaluation_batches(few, dataset, "train"), 40)]
    assert sum(counts) == 1097  # these are to train on only
    with pytest.raises(ValueError, match="labels_per_class=500, but class '0' has"):
        training_pixels(replace(data, labels_per_class=500), dataset, seed=0)


def test_each_host_has_its_part_of_each_batch(data, dataset):
    data = replace(data, crop="inception", flip=True)
    whole = take(training_pixels(data, dataset, 2, start_step=3), 2)
    parts = [take(training_pixels(data, dataset, 2, start_step=3, host=(i, 4)), 2) for i in range(4)]
    for step, (images, labels) in enumerate(whole):
        np.testing.assert_array_equal(np.concatenate([part[step][0] for part in parts]), images)
        np.testing.assert_array_equal(np.concatenate([part[step][1] for part in parts]), labels)
    # Of the second batch of 40 images, 8, the second host has none, and still a batch.
    halves = [take(evaluation_batches(data, dataset, "test[:40]", host=(i, 2)), 9) for i in range(2)]
    assert [[(weights > 0).sum() for _, _, weights in half] for half in halves] == [[16, 8], [16, 0]]
    with pytest.raises(ValueError, match="A batch of 32 images cannot be shared equally by 3 machines"):
        training_pixels(data, dataset, 0, host=(0, 3))


def test_replicas_share_each_batch(data, dataset):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    data = replace(data, augment=Augment(mixup_alpha=0.2))

    def of_host(context):
        host = (context.input_pipeline_id, context.num_input_pipelines)
        return training_batches(data, dataset, 1, host=host).rebatch(context.get_per_replica_batch_size(32))

    whole = take(training_batches(data, dataset, 1), 3)
    for batches in (
        strategy.experimental_distribute_dataset(training_batches(data, dataset, 1)),
        strategy.distribute_datasets_from_function(of_host),
    ):
        for (images, labels), (distributed, shared) in zip(whole, batches):
            parts = strategy.experimental_local_results(distributed)
            assert [part.shape[0] for part in parts] == [16, 16]
            np.testing.assert_array_equal(np.concatenate(parts), images)
            np.testing.assert_array_equal(np.concatenate(strategy.experimental_local_results(shared)), labels)


def test_augmented_batches_depend_on_seed_and_step_only(data, dataset):
    augment = Augment(randaugment_layers=2, erasing=0.5, mixup_alpha=0.2, cutmix_alpha=1.0)
    data = replace(data, augment=augment, image_size=12)
    whole = take(training_batches(data, dataset, 3), 4)
    tf.random.set_seed(5)
    ((images, labels),) = take(training_batches(data, dataset, 3, start_step=3), 1)
    np.testing.assert_array_equal(images, whole[3][0])
    np.testing.assert_array_equal(labels, whole[3][1])
    assert labels.shape == (32, 10) and labels.dtype == np.float32
    np.testing.assert_allclose(labels.sum(axis=1), 1.0, atol=1e-6)


def test_a_service_prepares_every_image_once_an_epoch(data, dataset):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    address = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address, heartbeat_interval_ms=100))
    data = replace(data, batch_size=1097, augment=Augment(mixup_alpha=1e-9))
    here = take(training_batches(data, dataset, 0), 1)[0][0]
    there, labels = take(training_batches(replace(data, service=dispatcher.target), dataset, 0), 1)[0]
    np.testing.assert_array_equal(sorted(map(bytes, here)), sorted(map(bytes, there)))
    assert labels.shape == (1097, 10)
    del worker, dispatcher


def test_errors_say_how_to_mend_them(data, dataset, tmp_path):
    with pytest.raises(ValueError, match=r"/path/<split>/<class>/<image>"):
        open_dataset(Data(dataset=f"folder:{tmp_path}"))
    with pytest.raises(ValueError, match="knows no data set 'no_such_data'"):
        open_dataset(Data(dataset="no_such_data", data_dir=str(tmp_path)))
    with pytest.raises(ValueError, match="No split 'dev' in digits. Splits: train, validation, test"):
        evaluation_batches(data, dataset, "dev")
    with pytest.raises(ValueError, match="No split 'dev'"):
        training_pixels(replace(data, train_split="dev"), dataset, 0)
    with pytest.raises(ValueError, match=r"The split 'train\[:0\]' of digits has no images"):
        training_pixels(replace(data, train_split="train[:0]"), dataset, 0)
    with pytest.raises(ValueError, match=r"The split 'test\[:0\]' of digits has no images"):
        evaluation_batches(data, dataset, "test[:0]")
