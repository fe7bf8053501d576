"""A table of a classifier's predictions: a line for each image, in the order of the split. n images, C classes."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy.special import expit, softmax

from keras_vit.atomic_write import naming_full_disk, new_files

COLUMNS = ("file", "label", "prediction")
SEPARATOR = ";"  # between several labels, as in the lists of `csv:` datasets


class PredictionsTable:
    """Writes the columns `COLUMNS` and one for each class, its probability; created by `write_predictions`.

    Args:
        file: A file that is open for text.
        class_names: C names.
        activation: "softmax" or "sigmoid", see `output_activation`.
    """

    def __init__(self, file, class_names: Sequence[str], activation: str | None):
        self.class_names = class_names
        self.activation = expit if activation == "sigmoid" else lambda logits: softmax(logits, axis=-1)
        self.writer = csv.writer(file, lineterminator="\n")
        self.writer.writerow([*COLUMNS, *class_names])

    def add(self, files: Sequence[str], logits, labels):
        """Adds n images: logits (n, C); labels (n,) integers, or (n, C) with a 1 for each correct class."""
        probabilities = self.activation(np.asarray(logits, "float64"))  # (n, C)
        for file, label, row in zip(files, labels, probabilities, strict=True):
            correct = np.flatnonzero(label) if np.ndim(label) else [label] if label >= 0 else []
            names = SEPARATOR.join(self.class_names[number] for number in map(int, correct))
            values = (f"{value:.9g}" for value in row)
            self.writer.writerow([file, names, self.class_names[row.argmax()], *values])


@contextmanager
def write_predictions(path: Path, class_names: Sequence[str], activation: str | None) -> Iterator[PredictionsTable]:
    """Yields the table of a CSV file, which appears or is replaced when the block ends without an error."""
    with naming_full_disk(path), new_files(path) as (new,), new.open("w", newline="", encoding="utf-8") as file:
        yield PredictionsTable(file, class_names, activation)
