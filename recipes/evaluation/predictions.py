"""A table of a classifier's predictions: a line for each image, in the order of the split. n images, C classes."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.special import expit, softmax

from keras_vit.atomic_write import naming_full_disk, new_files
from keras_vit.intervals import RESAMPLES, binomial_p_value, paired_interval, percent_and_count, wilson_interval
from keras_vit.messages import first_names
from keras_vit.recipes.data.groups import naming_wrong_encoding

COLUMNS, GROUP = ("file", "label", "prediction"), "group"
SEPARATOR = ";"  # between several labels, as in the lists of `csv:` datasets


class PredictionsTable:
    """Writes `COLUMNS`, the group if there are groups, and the probability of each class; see `write_predictions`.

    Args:
        file: A file that is open for text.
        class_names: C names.
        activation: "softmax" or "sigmoid", see `output_activation`.
        groups: The group of each image by its file, or None.
    """

    def __init__(self, file, class_names: Sequence[str], activation: str | None, groups: Mapping[str, str] | None):
        # With a first class of this name, there is always such a column before it.
        self.groups = {} if groups is None and class_names[0] == GROUP else groups
        self.class_names = class_names
        self.activation = expit if activation == "sigmoid" else lambda logits: softmax(logits, axis=-1)
        self.writer = csv.writer(file, lineterminator="\n")
        self.writer.writerow([*COLUMNS, *([] if self.groups is None else [GROUP]), *class_names])

    def add(self, files: Sequence[str], logits, labels):
        """Adds n images: logits (n, C); labels (n,) integers, or (n, C) with a 1 for each correct class."""
        probabilities = self.activation(np.asarray(logits, "float64"))  # (n, C)
        for file, label, row in zip(files, labels, probabilities, strict=True):
            correct = np.flatnonzero(label) if np.ndim(label) else [label] if label >= 0 else []
            names = SEPARATOR.join(self.class_names[number] for number in map(int, correct))
            values = (f"{value:.9g}" for value in row)
            group = [] if self.groups is None else [self.groups.get(file, "")]
            self.writer.writerow([file, names, self.class_names[row.argmax()], *group, *values])


@contextmanager
def write_predictions(
    path: Path, class_names: Sequence[str], activation: str | None, groups: Mapping[str, str] | None = None
) -> Iterator[PredictionsTable]:
    """Yields the table of a CSV file, which appears or is replaced when the block ends without an error."""
    with naming_full_disk(path), new_files(path) as (new,), new.open("w", newline="", encoding="utf-8") as file:
        yield PredictionsTable(file, class_names, activation, groups)


@dataclass(frozen=True)
class Predictions:
    """A table that was read.

    Attributes:
        files: n names.
        class_names: C names.
        correct: (n, C) bool, the labels of each image: one, several or none.
        probabilities: (n, C) float32 in [0, 1].
        groups: n names of groups, or None.
    """

    files: list[str]
    class_names: list[str]
    correct: np.ndarray
    probabilities: np.ndarray
    groups: list[str] | None = None

    @property
    def predicted(self) -> np.ndarray:
        """(n,), the most likely class of each image."""
        return self.probabilities.argmax(-1)

    @property
    def right(self) -> np.ndarray:
        """(n,) bool: whether the most likely class is a label of the image."""
        return np.take_along_axis(self.correct, self.predicted[:, None], axis=1)[:, 0]

    @cached_property
    def activation(self) -> str:
        """ "softmax" if the probabilities of each image sum to 1, else "sigmoid"."""
        return "softmax" if np.allclose(self.probabilities.sum(-1), 1, atol=0.02) else "sigmoid"  # rounded

    @property
    def one_label(self) -> bool:
        """Whether each image has one label."""
        return bool((self.correct.sum(-1) == 1).all())

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the recalls of the classes that have images, where each image has one label."""
        images, right = self.correct.sum(0), self.correct[self.right].sum(0)  # (C,)
        return float((right[images > 0] / images[images > 0]).mean())

    def describe_accuracy(self) -> tuple[str, str]:
        """The top-1 accuracy of the images with a label and its `accuracy_interval`; and of how many images and groups.

        Such as "66.7 % [52.5, 78.3]" and "32 of 48 images in 9 groups".
        """
        labeled = self.correct.any(-1)
        right, count = int(self.right[labeled].sum()), int(labeled.sum())
        accuracy, images = percent_and_count(right, count, self.accuracy_interval())
        if self.groups is None:
            return accuracy, images
        groups = len(set(np.array(self.groups)[labeled]))
        return accuracy, f"{images} in {groups:,} group{'s' * (groups != 1)}"

    def accuracy_interval(self) -> tuple[float, float]:
        """95 % interval of the top-1 accuracy of the images with a label, see `fraction_interval`."""
        return self.interval_of(np.asarray(self.correct.any(-1)))

    def interval_of(self, chosen: np.ndarray) -> tuple[float, float]:
        """95 % interval of the top-1 accuracy of some images, (n,) bool."""
        groups = None if self.groups is None else np.array(self.groups)[chosen]
        return fraction_interval(self.right[chosen], groups)

    @property
    def multi_label(self) -> bool:
        """Whether the classes are judged each by itself: sigmoids, and images with several labels or none."""
        return self.activation == "sigmoid" and not self.one_label


def fraction_interval(right: np.ndarray, groups: np.ndarray | None) -> tuple[float, float]:
    """95 % interval of mean(right), (n,) bool: that of Wilson, or one over groups, (n,) names.

    Images of a group agree, so that they say less than as many others. The bootstrap draws groups (percentiles);
    where all images or none are right, it is Wilson's for the number of groups. It is never narrower than Wilson's
    for images, as the bootstrap of a few groups may be.
    """
    of_images = wilson_interval(int(right.sum()), len(right))
    if groups is None:
        return of_images
    if right.all() or not right.any():
        total = len(set(groups))
        interval = wilson_interval(total * right[0], total)
    else:
        interval = _bootstrap_over_groups(right, groups)
    return min(interval[0], of_images[0]), max(interval[1], of_images[1])


def _bootstrap_over_groups(values: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """95 % interval of mean(values), (n,) integers: groups are drawn again with replacement."""
    _, number = np.unique(groups, return_inverse=True)
    counts = np.stack([np.bincount(number), np.bincount(number, values)])  # (2, groups)
    # A draw is fully described by the number of groups of each kind, with as many images and the same sum.
    kinds, sizes = np.unique(counts, axis=1, return_counts=True)
    drawn = np.random.default_rng(0).multinomial(sizes.sum(), sizes / sizes.sum(), RESAMPLES)  # (RESAMPLES, kinds)
    images, sums = kinds @ drawn.T  # (RESAMPLES,) each
    low, high = np.percentile(sums / images, [2.5, 97.5])
    return float(low), float(high)


def read_predictions(path: Path) -> Predictions:
    """The table of a CSV file of `write_predictions`.

    Raises:
        ValueError: It is no such table; it is empty, has a file twice, or a line has a probability outside [0, 1], an
            unknown label, or a prediction that has not the highest probability.
        OSError: The file cannot be read.
    """
    with naming_wrong_encoding(path), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        head = next(reader, [])
        if tuple(head[:3]) != COLUMNS or len(head) < 4:
            separated = "separated by commas, " if len(head) == 1 else ""
            raise ValueError(
                f"{path} is no table of predictions. Expected the columns {', '.join(COLUMNS)} and one for each class, "
                f"{separated}as keras-vit evaluate --predictions writes them. Received: "
                f"{', '.join(head[:5]) or 'an empty file'}"
            )
        first = 4 if head[3] == GROUP else 3
        names, groups = head[first:], []
        if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
            raise ValueError(f"{path} has two columns of the class {twice!r}. Give each class a name of its own.")
        numbers = {name: number for number, name in enumerate(names)}
        files, correct, rows = [], [], []
        for line in filter(None, reader):
            try:
                row = np.array(line[first:], "float32")
                if row.shape != (len(names),) or not ((row >= 0) & (row <= 1)).all():
                    raise ValueError("no probabilities of all classes")
                if row[numbers[line[2]]] < row.max():
                    raise ValueError("the prediction has not the highest probability")
                labels = [line[1]] if line[1] in numbers else filter(None, line[1].split(SEPARATOR))
                correct.append(np.bincount([numbers[label] for label in labels], minlength=len(names)) > 0)
            except (ValueError, KeyError, IndexError) as error:
                raise ValueError(f"Line {reader.line_num} of {path} is damaged ({error}): {line[:4]}") from error
            files.append(line[0])
            groups.append(line[3])
            rows.append(row)
    if not files:
        raise ValueError(f"{path} has no predictions.")
    if again := [file for file, count in Counter(files).items() if count > 1]:
        raise ValueError(f"{path} has {len(again):,} files in several lines: {first_names(again)}. Remove all but one.")
    return Predictions(files, names, np.array(correct), np.array(rows), groups if first > 3 and any(groups) else None)


@dataclass(frozen=True)
class Comparison:
    """Two models on the same images.

    Attributes:
        images: Number of images, which have a label.
        right: How many of them the first model and the second have right.
        only: How many of them only the first has right, and only the second.
        agreement: Fraction of the images for which both predict the same class.
        difference: Accuracy of the second minus that of the first.
        interval: 95 % interval of the difference, see `paired_interval`; with groups the bootstrap draws these, and it
            is not narrower than that of images.
        p_value: Of McNemar's exact test: the probability of a difference as large or larger, either way, between
            models of the same accuracy. None with groups, since it is for independent images.
    """

    images: int
    right: tuple[int, int]
    only: tuple[int, int]
    agreement: float
    difference: float
    interval: tuple[float, float]
    p_value: float | None


def compare_predictions(first: Predictions, second: Predictions) -> Comparison:
    """Compares the most likely classes of two tables of the same images.

    Raises:
        ValueError: The tables have other images, labels or classes.
    """
    order = _matching_rows(first, second)
    labeled = first.correct.any(-1)
    right = [table[labeled] for table in (first.right, second.right[order])]
    images, (only_first, only_second) = (
        int(labeled.sum()),
        [int(a.sum()) for a in (right[0] & ~right[1], right[1] & ~right[0])],
    )
    if not images:
        raise ValueError("No image has a label, so there is nothing to compare.")
    discordant = only_first + only_second
    interval = paired_interval(right[1], right[0])
    p_value: float | None = min(1.0, 2 * binomial_p_value(max(only_first, only_second), discordant, 0.5))
    if first.groups is not None:
        differences = right[1].astype(int) - right[0]
        of_groups = _bootstrap_over_groups(differences, np.array(first.groups)[labeled])
        interval, p_value = (min(interval[0], of_groups[0]), max(interval[1], of_groups[1])), None
    return Comparison(
        images=images,
        right=(int(right[0].sum()), int(right[1].sum())),
        only=(only_first, only_second),
        agreement=float((first.predicted == second.predicted[order])[labeled].mean()),
        difference=(only_second - only_first) / images,
        interval=interval,
        p_value=p_value,
    )


def _matching_rows(first, second) -> np.ndarray:
    """The rows of the second table in the order of the first."""
    if first.class_names != second.class_names:
        raise ValueError(
            f"The tables have other classes: {first.class_names[:5]} and {second.class_names[:5]}, of "
            f"{len(first.class_names):,} and {len(second.class_names):,}. Of a run of keras-vit finetune with new "
            "classes, earlier-predictions.csv has those of the model before on the same images."
        )
    places = {file: row for row, file in enumerate(second.files)}
    if len(places) != len(second.files) or sorted(first.files) != sorted(places):
        missing = next((file for file in first.files if file not in places), None)
        example = f" {missing!r} is only in the first." if missing else ""
        raise ValueError(
            f"The tables are of other images: {len(first.files):,} and {len(second.files):,}.{example} Evaluate both "
            "models on the same split."
        )
    order = np.array([places[file] for file in first.files])
    if not (first.correct == second.correct[order]).all():
        raise ValueError("The labels of the tables differ. Evaluate both models on the same dataset.")
    return order
