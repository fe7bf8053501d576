"""`ImageDataset`, the form in which every dataset is opened, with the ranges and sizes of its splits. C classes."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import tensorflow as tf
import tensorflow_datasets as tfds


@dataclass(frozen=True)
class ImageDataset:
    """A dataset of labeled images, as `open_dataset` returns it.

    Args:
        name: As in the recipe.
        class_names: C names, in the order of the labels.
        splits: Number of images in each split.
        read: From a split in TensorFlow Datasets' notation, such as "train[:98%]", to a `tf.data.Dataset` in a fixed
            order of (name of the image for messages, encoded image, label); both strings are scalar.
        read_shuffled: From a split and a scalar int64 seed to the examples of `read`, with the files, each of many
            images, in an order drawn from the seed; None if there are no such files.
        stores_paths: `read` yields file paths instead of encoded images: they are cheap to shuffle and to skip.
        multi_label: Labels are (C,) float32 with a 1 for each correct class; otherwise they are scalar int64.
        max_value: Largest value of the stored pixels, which are multiplied by 255 // max_value.
    """

    name: str
    class_names: tuple[str, ...]
    splits: dict[str, int]
    read: Callable[[str], tf.data.Dataset]
    read_shuffled: Callable[[str, tf.Tensor], tf.data.Dataset] | None = None
    stores_paths: bool = False
    multi_label: bool = False
    max_value: int = 255

    def __post_init__(self):
        """Raises ValueError for a class name of several lines, which labels.txt could not have."""
        if broken := [name for name in self.class_names if name.splitlines() != [name]]:
            raise ValueError(
                f"The class name {broken[0]!r} of {self.name!r} is not one line of text. Rename the class, in a "
                "dataset of folders by renaming its folder."
            )


def class_names(dataset: ImageDataset) -> list[str]:
    """Names of the classes, in the order of the labels."""
    return list(dataset.class_names)


def count_examples(dataset: ImageDataset, split: str) -> int:
    """Number of images in a split; raises ValueError with the known splits if it is unknown."""
    return sum(end - start for _, start, end in split_ranges(dataset.splits, split, dataset.name))


def count_nonempty(dataset: ImageDataset, split: str) -> int:
    """Number of images in a split; raises ValueError if the split is unknown or empty."""
    total = count_examples(dataset, split)
    if not total:
        raise ValueError(f"The split {split!r} of {dataset.name} has no images.")
    return total


def split_ranges(splits: dict[str, int], split: str, dataset_name: str) -> list[tuple[str, int, int]]:
    """Resolves a split in TensorFlow Datasets' notation, such as "train[:98%]+test", of any data.

    Args:
        splits: Number of images in each split.
        split: In TensorFlow Datasets' notation.
        dataset_name: For the message.

    Returns:
        (name, start, end) of each part, in images.

    Raises:
        ValueError: The split is unknown or out of range; the message lists the known ones.
    """
    try:
        infos = {name: SimpleNamespace(num_examples=count) for name, count in splits.items()}
        parts = tfds.core.ReadInstruction.from_spec(split).to_absolute(infos)
    except (ValueError, AssertionError) as error:
        raise ValueError(f"No split {split!r} in {dataset_name}. Splits: {', '.join(splits)}") from error
    return [(part.splitname, part.from_ or 0, splits[part.splitname] if part.to is None else part.to) for part in parts]


def name_by_index(source: str, index):
    """Name, for messages, of an image that has none: scalar string, such as "test[:10] image 3"."""
    return tf.strings.join([f"{source} image ", tf.strings.as_string(index)])
