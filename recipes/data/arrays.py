"""Images and labels of a split as NumPy arrays, in order: for evaluation, features and export. H W pixels."""

from dataclasses import replace
from itertools import islice

import numpy as np
import tensorflow as tf

from keras_vit.decoding import decode
from keras_vit.name_list import first_names
from keras_vit.recipes.data.corrupt_images import count_skipped
from keras_vit.recipes.data.image_dataset import ImageDataset, count_nonempty, report_data_errors
from keras_vit.recipes.recipe import Data


def decoded_images(
    dataset: ImageDataset, split: str, batch_size: int, max_corrupt: float = Data.max_corrupt, indices=None
):
    """Yields lists of up to `batch_size` images, (H, W, 3) uint8 of any size, and their labels; each once, in order.

    Corrupt images are skipped, and named on standard error unless this process has named them before.

    Args:
        indices: Array of the positions in the split of the images to read, from 0; None for all.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}")
    total = count_nonempty(dataset, split)
    selected = np.ones(total, bool) if indices is None else np.isin(np.arange(total), indices)
    corrupt = []

    def decoded():
        for name, image, label in _iterate_decoded(dataset, split, selected):
            if image.size:
                yield image, label
            else:
                corrupt.append(name.decode())

    yield from example_batches(decoded(), batch_size)
    if corrupt:
        count_skipped(dataset.name, corrupt)
        _check_number(dataset, split, corrupt, max_corrupt, selected.sum())


def example_batches(examples, batch_size: int):
    """Yields lists of images, and arrays of their labels, of pairs (image, label)."""
    examples = iter(examples)
    while batch := list(islice(examples, batch_size)):
        images, labels = zip(*batch)
        yield list(images), np.array(labels)


def numbered(dataset: ImageDataset) -> ImageDataset:
    """The dataset with the position of each image in its split, from 0, as its label: int64."""

    def read(split):
        return dataset.read(split).enumerate().map(lambda index, example: (*example[:2], index))

    return replace(dataset, read=read, read_shuffled=None, multi_label=False)


def check_any(decoded, dataset: ImageDataset, split: str):
    """Raises ValueError if nothing was decoded: no image of the split can be decoded."""
    if not len(decoded):
        raise ValueError(f"No image of {split!r} of {dataset.name} can be decoded. Replace the files.")


def read_encoded(dataset: ImageDataset, split: str):
    """Yields each image of a split as stored (bytes), and its label."""
    with report_data_errors(dataset, split, only_reads=True):
        for _, stored, label in dataset.read(split).as_numpy_iterator():
            yield tf.io.gfile.GFile(stored, "rb").read() if dataset.stores_paths else stored, label


def read_labels(dataset: ImageDataset, split: str) -> np.ndarray:
    """(n,) int64 labels of all images of a split; decodes none."""
    if dataset.multi_label:
        raise ValueError(f"Expected images of one class each. Received: {dataset.name!r}, whose have any number.")
    labels = dataset.read(split).map(lambda name, stored, label: label).as_numpy_iterator()
    with report_data_errors(dataset, split, only_reads=True):
        return np.fromiter(labels, "int64")


def decode_stored(dataset: ImageDataset, stored):
    """Decodes an image as `dataset.read` yields it, an encoded image or its path, to (H, W, 3) uint8 in [0, 255]."""
    image = decode(tf.io.read_file(stored) if dataset.stores_paths else stored)
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


def _iterate_decoded(dataset, split, selected):
    """Yields name, pixels and label of each selected image, see `decode_examples`."""
    end = 1 + max(np.flatnonzero(selected), default=-1)  # the filter alone would read to the end of the split
    examples = dataset.read(split).take(end) if end < len(selected) else dataset.read(split)
    examples = examples.enumerate().filter(lambda index, _: tf.constant(selected)[index])
    with report_data_errors(dataset, split, only_reads=True):
        yield from decode_examples(dataset, examples.map(lambda _, example: example)).as_numpy_iterator()


def _check_number(dataset, split, names, max_corrupt, num_selected):
    allowed = max_corrupt * num_selected
    if len(names) > allowed:
        images, them = ("image", "it") if len(names) == 1 else ("images", "them")
        raise ValueError(
            f"{len(names):,} {images} of {split!r} of {dataset.name} cannot be decoded; {int(allowed)} are allowed "
            f"(max_corrupt={max_corrupt}; --max-corrupt). Fix or remove {them}, or allow more: {first_names(names)}"
        )
