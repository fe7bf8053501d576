"""Errors that TensorFlow raises while `fit` or `evaluate` reads a dataset, as one sentence with a fix."""

import re
from contextlib import contextmanager

import tensorflow as tf

from keras_vit.recipes.data.image_dataset import ImageDataset
from keras_vit.recipes.remote_files import error_summary

# Words of our own assertions in the graph, and what to do.
FIXES = {
    "images cannot be decoded": "Fix or remove the images that are named above, or increase max_corrupt.",
    "No image of a batch can be decoded": "Fix or remove the images that are named above.",
    "has the label": "",  # the message says what to do
}


@contextmanager
def report_data_errors(dataset: ImageDataset, split: str | None = None):
    """Turns TensorFlow's errors about the images, labels or files of a dataset into a ValueError; passes on others.

    Args:
        dataset: From `open_dataset`.
        split: The split that is read, if it is one.
    """
    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        part = f"The split {split!r} of {dataset.name}" if split else f"The dataset {dataset.name}"
        raise ValueError(f"{part} cannot be read: {sentence}") from error


def _sentence(error):
    if isinstance(error, tf.errors.DataLossError):
        found = re.search(r"(truncated|corrupted) record[^\n]*?(?=\s*\[|\n|$)", error.message)
        what = found.group() if found else error_summary(error)
        return f"a TFRecord file is damaged ({what}). Copy or write it again."
    for line in error.message.splitlines():
        for words, fix in FIXES.items():
            if words in line and "assertion failed:" in line:
                parts = re.findall(r"\[(.*?)\](?= \[|\s*$)", line.partition("assertion failed:")[2])
                return f"{' '.join(parts).rstrip('.')}. {fix}".rstrip().replace('\\"', '"')
    return None
