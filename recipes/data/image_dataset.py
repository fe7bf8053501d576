"""`ImageDataset`, the form in which every dataset is opened; its splits, and errors while it is read. C classes."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.class_names import checked_lines
from keras_vit.messages import error_summary

# Words of our own assertions in the graph, and what to do.
FIXES = {
    "images cannot be decoded": "Fix or remove the images that are named above, or increase max_corrupt.",
    "No image can be decoded": "Fix or remove the images that are named above.",
    "has the label": "",  # the message says what to do
}


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A dataset of labeled images, as `open_dataset` returns it.

    Args:
        splits: Number of images in each split.
        read: From a split in TensorFlow Datasets' notation, such as "train[:98%]", to a `tf.data.Dataset` in a fixed
            order of (name of the image for messages, encoded image, label); both strings are scalar.
        read_shuffled: From a split and a scalar int64 seed to the examples of `read`, with the files, each of many
            images, in an order drawn from the seed; None if there are no such files.
        stores_paths: `read` yields file paths instead of encoded images: they are cheap to shuffle and to skip.
        multi_label: Labels are (C,) float32 with a 1 for each correct class; otherwise they are scalar int64.
        max_value: Largest value of the stored pixels, which are multiplied by 255 // max_value.
        groups: The group of each image by its name, see `Data.group`; None without groups.
        cuts: With groups, the positions in each split that are not within one, from 0 to its size, ascending: a part
            such as "train[:80%]" ends at the nearest.
        pixel_range: Of gray images with 16 bits, when they are decoded, see `keras_vit.Preprocessing`.
    """

    name: str
    class_names: tuple[str, ...]
    splits: dict[str, int]
    read: Callable[[str], tf.data.Dataset]
    read_shuffled: Callable[[str, tf.Tensor], tf.data.Dataset] | None = None
    stores_paths: bool = False
    multi_label: bool = False
    max_value: int = 255
    groups: Mapping[str, str] | None = None
    cuts: Mapping[str, Sequence[int]] | None = None
    pixel_range: tuple[int, int] | None = None

    def __post_init__(self):
        """Raises ValueError for class names that are not one line of text each, which labels.txt could not have."""
        check_class_names(self.class_names, self.name)


def decoded_for(dataset: ImageDataset, preprocessing) -> ImageDataset:
    """The dataset with the `pixel_range` of a recipe's data, or of a model's preprocessing, which may be None."""
    pixel_range = getattr(preprocessing, "pixel_range", None)
    return dataset if dataset.pixel_range == pixel_range else replace(dataset, pixel_range=pixel_range)


def check_class_names(names: Iterable[str], source: str):
    """Raises ValueError unless each name of a source's classes is one line of text."""
    try:
        checked_lines(list(names))
    except ValueError as error:
        fix = "Rename the class, in a dataset of folders by renaming its folder"
        raise ValueError(f"{source!r}: {error}. {fix}.") from error


def count_examples(dataset: ImageDataset, split: str) -> int:
    """Number of images in a split; raises ValueError with the known splits if it is unknown."""
    return sum(end - start for _, start, end in split_ranges(dataset.splits, split, dataset.name, dataset.cuts))


def count_nonempty(dataset: ImageDataset, split: str) -> int:
    """Number of images in a split; raises ValueError if the split is unknown or empty."""
    total = count_examples(dataset, split)
    if not total:
        raise ValueError(f"The split {split!r} of {dataset.name} has no images.")
    return total


def split_ranges(
    splits: dict[str, int], split: str, dataset_name: str, cuts: Mapping[str, Sequence[int]] | None = None
) -> list[tuple[str, int, int]]:
    """(name, start, end) of each part of a split in TensorFlow Datasets' notation, such as "train[:98%]+test".

    `cuts` are those of `ImageDataset`.
    """
    try:
        infos = {name: SimpleNamespace(num_examples=count) for name, count in splits.items()}
        parts = tfds.core.ReadInstruction.from_spec(split).to_absolute(infos)
    except (ValueError, AssertionError) as error:
        raise ValueError(f"No split {split!r} in {dataset_name}. Splits: {', '.join(splits)}") from error
    ranges = [
        (part.splitname, part.from_ or 0, splits[part.splitname] if part.to is None else part.to) for part in parts
    ]
    if cuts:
        ranges = [(name, *(_nearest(cuts[name], place) for place in places)) for name, *places in ranges]
    return [(name, start, max(start, end)) for name, start, end in ranges]  # "test[5:2]" is empty


def _nearest(cuts, place) -> int:
    return min(cuts, key=lambda cut: abs(cut - place))


def fixed_orders(
    splits: Mapping[str, int], groups: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """A fixed permutation of the images of each split, in which groups are together, and the `cuts` between them.

    Args:
        splits: Number of images.
        groups: The group of each image by split; {} for none, and no cuts.
    """
    # RandomState never changes.
    orders = {split: np.random.RandomState(0).permutation(count).tolist() for split, count in splits.items()}
    cuts = {}
    for split in groups:
        members: dict[str, list[int]] = {}
        for place in orders[split]:
            members.setdefault(groups[split][place], []).append(place)
        orders[split] = [place for group in members.values() for place in group]
        cuts[split] = np.cumsum([0, *map(len, members.values())]).tolist()
    return orders, cuts


def select_ranges(files: dict[str, list[tuple]], ranges: list[tuple[str, int, int]]) -> list[tuple]:
    """(*file, start, end) of the files that contain `split_ranges`, from (*file, number of images) of each split."""
    selected = []
    for split, start, end in ranges:
        for *file, count in files[split]:
            if max(start, 0) < min(end, count):
                selected.append((*file, max(start, 0), min(end, count)))
            start, end = start - count, end - count
    return selected


def name_by_index(source: str, index):
    """Name, for messages, of an image that has none: scalar string, such as "test[:10] image 3"."""
    return tf.strings.join([f"{source} image ", tf.strings.as_string(index)])


@contextmanager
def report_data_errors(dataset: ImageDataset, split: str | None = None, only_reads: bool = False):
    """Turns TensorFlow's errors about the images, labels or files of a dataset into a ValueError of one sentence.

    With `only_reads`, nothing but the dataset can raise errors of TensorFlow. Otherwise unknown ones are passed on.
    """
    try:
        yield
    except tf.errors.OpError as error:
        sentence = _sentence(error)
        if not sentence and not only_reads:
            raise
        part = f"The split {split!r} of {dataset.name}" if split else f"The dataset {dataset.name}"
        sentence = sentence or f"{error_summary(error)}. Prepare or copy damaged files again."
        raise ValueError(f"{part} cannot be read: {sentence}") from error


def _sentence(error):
    if isinstance(error, tf.errors.DataLossError):
        match = re.search(r"(truncated|corrupted) record[^\n]*?(?=\s*\[|\n|$)", error.message)
        what = match.group() if match else error_summary(error)
        return f"a TFRecord file is damaged ({what}). Copy or write it again."
    for line in error.message.splitlines():
        for words, fix in FIXES.items():
            if words in line and "assertion failed:" in line:
                parts = re.findall(r"\[(.*?)\](?= \[|\s*$)", line.partition("assertion failed:")[2])
                return f"{' '.join(parts).rstrip('.')}. {fix}".rstrip().replace('\\"', '"')
    return None
