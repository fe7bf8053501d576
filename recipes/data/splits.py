"""Splits in TensorFlow Datasets' notation, such as "train[:98%]+test", of data that it did not write."""

from types import SimpleNamespace

import tensorflow as tf
import tensorflow_datasets as tfds


def parts(splits: dict[str, int], split: str, name: str) -> list[tuple[str, int, int]]:
    """What a split in TensorFlow Datasets' notation consists of: (name, first, end) in images.

    Raises:
        ValueError: There is no such split; the message names those there are.
    """
    try:
        infos = {known: SimpleNamespace(num_examples=count) for known, count in splits.items()}
        found = tfds.core.ReadInstruction.from_spec(split).to_absolute(infos)
    except (ValueError, AssertionError) as error:
        raise ValueError(f"No split {split!r} in {name}. Splits: {', '.join(splits)}") from error
    return [(part.splitname, part.from_ or 0, splits[part.splitname] if part.to is None else part.to) for part in found]


def numbered(place: str, number):
    """The name of an image that has none of its own, for the log: scalar string."""
    return tf.strings.join([f"{place} number ", tf.strings.as_string(number)])
