"""Images and labels of a split as NumPy arrays, in order: for evaluation, features and export. H W pixels."""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import tensorflow as tf

from keras_vit.images.decoding import decode
from keras_vit.messages import first_names
from keras_vit.recipes.data.corrupt_images import count_skipped
from keras_vit.recipes.data.image_dataset import ImageDataset, count_nonempty, report_data_errors
from keras_vit.recipes.recipe import Data

BATCH = 1024  # examples at a time where none is decoded


def decoded_images(
    dataset: ImageDataset,
    split: str,
    batch_size: int,
    max_corrupt: float = Data.max_corrupt,
    indices=None,
    names: list[str] | None = None,
):
    """Yields lists of up to `batch_size` images, (H, W, 3) uint8 of any size, and their labels; each once, in order.

    Corrupt images are skipped, and named on standard error unless this process has named them before.

    Args:
        indices: Array of the positions in the split of the images to read, from 0; None for all.
        names: A list that has the names of the images of a batch while it is used: their files, if they have some.
    """

    def examples():
        for name, _, image, label in _decoded(dataset, split, max_corrupt, indices):
            if names is not None:
                names.append(name)
            yield image, label

    for batch in example_batches(examples(), batch_size):
        yield batch
        if names is not None:
            names.clear()


def decoded_positions(dataset: ImageDataset, split: str, batch_size: int, max_corrupt: float, indices=None):
    """`decoded_images` with the positions of the images in the split, from 0, in place of their labels."""
    decoded = _decoded(dataset, split, max_corrupt, indices)
    yield from example_batches(((image, position) for _, position, image, _ in decoded), batch_size)


def _decoded(dataset, split, max_corrupt, indices):
    """Yields name, position, pixels and label of each selected image that can be decoded."""
    total, corrupt = count_nonempty(dataset, split), []
    selected = np.arange(total) if indices is None else np.intersect1d(np.arange(total), indices)
    examples = decode_examples(dataset, read_examples(dataset, split, indices))
    with report_data_errors(dataset, split, only_reads=True):
        for (name, image, label), position in zip(examples.as_numpy_iterator(), selected):  # to the end of the examples
            if image.size:
                yield name.decode(), position, image, label
            else:
                corrupt.append(name.decode())
    if corrupt:
        count_skipped(dataset.name, corrupt)
        _check_number(dataset, split, corrupt, max_corrupt, len(selected))


def example_batches(examples, batch_size: int):
    """Yields lists of images, and arrays of their labels, of pairs (image, label)."""
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}")
    examples = iter(examples)
    while batch := list(islice(examples, batch_size)):
        images, labels = zip(*batch)
        yield list(images), np.array(labels)


def check_any(decoded, dataset: ImageDataset, split: str):
    """Raises ValueError if nothing was decoded: no image of the split can be decoded."""
    if not len(decoded):
        raise ValueError(f"No image of {split!r} of {dataset.name} can be decoded. Replace the files.")


def read_arrays(dataset: ImageDataset, split: str, fields: Callable) -> Iterator:
    """Yields arrays of up to 1,024 of what `fields(name, stored, label)` returns for the examples, in order."""
    examples = dataset.read(split)
    # Of paths, batches come first: a call for each of them takes ten times as long. Images would fill the memory.
    batches = examples.batch(BATCH).map(fields) if dataset.stores_paths else examples.map(fields).batch(BATCH)
    with report_data_errors(dataset, split, only_reads=True):
        yield from batches.as_numpy_iterator()


def read_examples(dataset: ImageDataset, split: str, indices=None) -> tf.data.Dataset:
    """The examples of `dataset.read` at some positions, in the order of the split; all for None."""
    if indices is None:
        return dataset.read(split)
    selected = np.isin(np.arange(count_nonempty(dataset, split)), indices)
    if not dataset.stores_paths:
        examples = dataset.read(split).take(1 + max(np.flatnonzero(selected), default=-1))
        return examples.enumerate().filter(lambda i, _: tf.constant(selected)[i]).map(lambda _, example: example)
    batches = read_arrays(dataset, split, lambda *example: example)
    chosen = [[array[rows] for array in batch] for batch, rows in zip(batches, _batches(selected))]
    return tf.data.Dataset.from_tensor_slices(tuple(np.concatenate(arrays) for arrays in zip(*chosen)))


def _batches(array):
    return (array[start : start + BATCH] for start in range(0, len(array), BATCH))


def read_encoded(dataset: ImageDataset, split: str, indices=None):
    """Yields each image of a split as stored (bytes), and its label; see `read_examples` for `indices`."""
    with report_data_errors(dataset, split, only_reads=True):
        for _, stored, label in read_examples(dataset, split, indices).as_numpy_iterator():
            yield tf.io.gfile.GFile(stored, "rb").read() if dataset.stores_paths else stored, label


def read_labels(dataset: ImageDataset, split: str) -> np.ndarray:
    """(n,) int64 labels of all images of a split; decodes none."""
    if dataset.multi_label:
        raise ValueError(f"Expected images of one class each. Received: {dataset.name!r}, whose have any number.")
    return np.concatenate([np.zeros(0, "int64"), *read_arrays(dataset, split, lambda name, stored, label: label)])


def indices_by_class(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """The positions of each class in (n,) labels, in order; labels below 0 are of none."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(num_classes + 1)))[1:-1]


def decode_stored(dataset: ImageDataset, stored):
    """Decodes an image as `dataset.read` yields it, an encoded image or its path, to (H, W, 3) uint8 in [0, 255]."""
    encoded = tf.io.read_file(stored) if dataset.stores_paths else stored
    image = decode(encoded, pixel_range=dataset.pixel_range)
    return image * tf.constant(255 // dataset.max_value, tf.uint8) if dataset.max_value < 255 else image


def decode_examples(dataset: ImageDataset, examples):
    """Decodes the images of a dataset of (name, stored image, label).

    A corrupt image becomes (0, 0, 3): its transform fails each time, as that of the encoded image would. Only errors of
    one image are ignored: an error of a file that holds many would recur forever.
    """
    empty = tf.data.Dataset.from_tensors(tf.zeros((0, 0, 3), tf.uint8))

    def decode_one(name, stored, label):
        image = tf.data.Dataset.from_tensors(stored).map(lambda stored: decode_stored(dataset, stored)).ignore_errors()
        return image.concatenate(empty).take(1).map(lambda image: (name, image, label))

    return examples.interleave(decode_one, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _check_number(dataset, split, names, max_corrupt, num_selected):
    allowed = max_corrupt * num_selected
    if len(names) > allowed:
        images, them = ("image", "it") if len(names) == 1 else ("images", "them")
        raise ValueError(
            f"{len(names):,} {images} of {split!r} of {dataset.name} cannot be decoded; {int(allowed)} are allowed "
            f"(max_corrupt={max_corrupt}; --max-corrupt). Fix or remove {them}, or allow more: {first_names(names)}"
        )
