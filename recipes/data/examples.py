"""Which images of a split come, in which order, and the pixels of one. H W pixels."""

from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from keras_vit.recipes.data.datasets import count_examples
from keras_vit.recipes.data.decode import decode
from keras_vit.recipes.reason import reason


def read_examples(data, dataset, split, seed):
    """(name, encoded image, label) to train on; with `labels_per_class`, of the chosen images only."""
    count_examples(dataset, split)
    examples = dataset.read(split)
    if data.labels_per_class:
        chosen = tf.constant(_chosen(dataset, split, data.labels_per_class, seed))
        examples = examples.enumerate().filter(lambda i, _: chosen[i]).map(lambda _, example: example)
    return examples


def read_labels(dataset, split) -> np.ndarray:
    """(n,) int64, of all images of a split, none of which is decoded."""
    labels = dataset.read(split).map(lambda name, image, label: label).as_numpy_iterator()
    with undamaged(dataset, split):
        return np.fromiter(labels, "int64")


def read_encoded(dataset, split):
    """Yields each image of a split as it is stored, bytes, and its label."""
    with undamaged(dataset, split):
        for _, image, label in dataset.read(split).as_numpy_iterator():
            yield tf.io.gfile.GFile(image, "rb").read() if dataset.are_files else image, label


@contextmanager
def undamaged(dataset, split):
    """Turns TensorFlow's error at files that cannot be read into a ValueError that names the split."""
    try:
        yield
    except tf.errors.OpError as error:
        raise ValueError(
            f"The split {split!r} of {dataset.name} cannot be read: {reason(error)}. Files that are damaged are to be "
            "prepared or copied again."
        ) from error


def has_labels(dataset, split) -> bool:
    """Whether the first image of a split has a label; TensorFlow Datasets has -1 where they were not published."""
    return all((np.asarray(label) >= 0).all() for *_, label in dataset.read(split).take(1).as_numpy_iterator())


def count_chosen(data, dataset, split) -> int:
    """Number of the examples that `read_examples` gives; raises ValueError as `count_some`."""
    total = count_some(dataset, split)
    return data.labels_per_class * len(dataset.class_names) if data.labels_per_class else total


def count_some(dataset, split) -> int:
    """Number of images of a split; raises ValueError if there are none, or no such split."""
    total = count_examples(dataset, split)
    if not total:
        raise ValueError(f"The split {split!r} of {dataset.name} has no images.")
    return total


def shuffled_forever(examples, buffer_images, seed, first_epoch):
    """Epoch after epoch, in an order drawn from (seed, epoch); `shuffle().repeat()` also counts former iterators."""

    def epoch(number):
        tf.random.set_seed(1)  # of this graph only: `shuffle` would mix the program's global seed in
        return examples.shuffle(buffer_images, seed=seed * 1_000_003 + number, reshuffle_each_iteration=False)

    # A range, and not a counter, can be split among the workers of a tf.data service.
    return tf.data.Dataset.range(first_epoch, np.iinfo("int64").max).flat_map(epoch)


def pixels(dataset, encoded):
    """(H, W, 3) uint8 from what `read` gives as an image."""
    image = decode(tf.io.read_file(encoded) if dataset.are_files else encoded)
    return image * tf.constant(255 // dataset.brightest, tf.uint8) if dataset.brightest < 255 else image


def decoded_once(dataset, examples):
    """`pixels` of all examples; a corrupt image has none, so that what follows fails on it every time it comes."""
    empty = tf.data.Dataset.from_tensors(tf.zeros((0, 0, 3), tf.uint8))

    def decoded(name, encoded, label):
        image = tf.data.Dataset.from_tensors(encoded).map(lambda encoded: pixels(dataset, encoded)).ignore_errors()
        return image.concatenate(empty).take(1).map(lambda image: (name, image, label))

    return examples.interleave(decoded, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _chosen(dataset, split, labels_per_class, seed) -> np.ndarray:
    """A boolean for each image of the split: whether it is one of its class's chosen ones."""
    if dataset.several_answers:
        raise ValueError(f"{dataset.name} has several right answers: `labels_per_class` must be None.")
    labels = read_labels(dataset, split)
    chosen = np.zeros(len(labels), bool)
    random = np.random.default_rng(seed)
    for number, name in enumerate(dataset.class_names):
        members = np.flatnonzero(labels == number)
        if len(members) < labels_per_class:
            raise ValueError(
                f"labels_per_class={labels_per_class}, but class {name!r} has {len(members)} images in {split!r}."
            )
        chosen[random.choice(members, labels_per_class, replace=False)] = True
    return chosen
