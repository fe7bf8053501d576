"""Reading a split as NumPy arrays."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data import decoded_images, open_dataset, read_encoded, read_labels
from keras_vit.recipes.recipe import Data


@pytest.fixture
def digits(data_dir):
    return open_dataset(Data(dataset="digits", data_dir=data_dir))


def test_indices_select_images(digits):
    all_images, all_labels = zip(*decoded_images(digits, "test[:10]", 10))
    images, labels = zip(*decoded_images(digits, "test[:10]", 2, max_corrupt=0, indices=np.array([7, 2, 3])))
    assert [len(batch) for batch in images] == [2, 1]
    for image, index in zip((image for batch in images for image in batch), (2, 3, 7)):
        np.testing.assert_array_equal(image, all_images[0][index])
    np.testing.assert_array_equal(np.concatenate(labels), all_labels[0][[2, 3, 7]])


def test_reading_stops_after_the_last_index(digits):
    names = []

    def count(name, image, label):
        return tf.numpy_function(lambda name: names.append(name) or name, [name], tf.string), image, label

    counting = replace(digits, read=lambda split: digits.read(split).map(count, num_parallel_calls=1))
    ((images, _),) = decoded_images(counting, "train", 64, indices=np.array([3, 17, 29]))
    assert len(images) == 3 and 30 <= len(names) < 40  # some are prefetched


@pytest.mark.parametrize("size", [0, -4])
def test_batch_size_is_checked(digits, size):
    with pytest.raises(ValueError, match=f"`batch_size` must be at least 1. Received: {size}"):
        next(decoded_images(digits, "test", size))


def test_damaged_files_are_reported_and_not_read_forever(digits):
    cut = tf.data.experimental.assert_cardinality(12)  # as TensorFlow Datasets expects of its files
    damaged = replace(digits, read=lambda split: digits.read(split).apply(cut))
    with pytest.raises(ValueError, match=r"split 'test\[:10\]' of digits cannot be read: .*contain 12 elements"):
        list(decoded_images(damaged, "test[:10]", 4))
    for read in (lambda: list(read_encoded(damaged, "test[:10]")), lambda: read_labels(damaged, "test[:10]")):
        with pytest.raises(ValueError, match=r"cannot be read: [^{[]*contain 12 elements[^{[]*\. Prepare or copy"):
            read()
