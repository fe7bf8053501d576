from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.data.examples import read_encoded, read_labels
from keras_vit.recipes.recipe import Data


def test_some_images_of_a_split(data_dir):
    dataset = open_dataset(Data(dataset="digits", data_dir=data_dir))
    all_images, labels = zip(*decoded_images(dataset, "test[:10]", 10))
    chosen, answers = zip(*decoded_images(dataset, "test[:10]", 2, max_corrupt=0, numbers=np.array([7, 2, 3])))
    assert [len(part) for part in chosen] == [2, 1]
    for image, number in zip((image for part in chosen for image in part), (2, 3, 7)):
        np.testing.assert_array_equal(image, all_images[0][number])
    np.testing.assert_array_equal(np.concatenate(answers), labels[0][[2, 3, 7]])


def test_no_more_is_read_than_some_images_need(data_dir):
    dataset, read = open_dataset(Data(dataset="digits", data_dir=data_dir)), []

    def count(name, image, label):
        return tf.numpy_function(lambda name: read.append(name) or name, [name], tf.string), image, label

    counted = replace(dataset, read=lambda split: dataset.read(split).map(count, num_parallel_calls=1))
    numbers = np.array([3, 17, 29])
    (images,) = [some for some, _ in decoded_images(counted, "train", 64, numbers=numbers)]
    assert len(images) == 3 and 30 <= len(read) < 40  # some are read ahead


@pytest.mark.parametrize("size", [0, -4])
def test_batches_have_images(data_dir, size):
    dataset = open_dataset(Data(dataset="digits", data_dir=data_dir))
    with pytest.raises(ValueError, match=f"`batch_size` must be at least 1. Received: {size}"):
        next(decoded_images(dataset, "test", size))


def test_damaged_files_are_told_and_not_read_for_ever(data_dir):
    dataset = open_dataset(Data(dataset="digits", data_dir=data_dir))
    cut = tf.data.experimental.assert_cardinality(12)  # as TensorFlow Datasets expects of its files
    damaged = replace(dataset, read=lambda split: dataset.read(split).apply(cut))
    with pytest.raises(ValueError, match=r"split 'test\[:10\]' of digits cannot be read: .*contain 12 elements"):
        list(decoded_images(damaged, "test[:10]", 4))
    for read in (lambda: list(read_encoded(damaged, "test[:10]")), lambda: read_labels(damaged, "test[:10]")):
        with pytest.raises(ValueError, match=r"cannot be read: [^{[]*contain 12 elements[^{[]*\. Files"):
            read()
