"""What `keras-vit finetune` does about copies of images: groups that keep them on one side, and lists of the others."""

import csv
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from keras_vit.intervals import percent_and_count
from keras_vit.recipes.data.image_folder import split_by_hash
from keras_vit_cli.commands.report.command import TABLE
from keras_vit_cli.copies import Hashes, copied_pairs

FILE = "copies.csv"
MOST_PAIRS = 50  # of copies for each image; of more, all images are alike
FEWEST, MOST, LARGEST = 0.1, 0.35, 0.1  # parts of the images: of the test set, and of the largest group of copies


def unite_copies(
    hashes: Hashes, path: str, images: list[tuple[str, str]], groups: dict[str, str]
) -> dict[str, str] | None:
    """The groups of a folder's images in which copies are together; None if there are no copies, or too many.

    A group of copies has the shortest of their names, which is that of the first: it decides about the split, and
    copies that come later stay with it. Where nearly identical images would tie too much of the folder together, as
    images of one scene do, only files with the same bytes are.

    Args:
        hashes: Of all images that can be read, by path.
        path: The folder.
        images: (class, file) of all, relative to the folder.
        groups: File to group, see `Data.group`; {} for none.
    """
    single = groups or {file: file for _, file in images}
    for exact in (False, True):
        pairs = list(islice(copied_pairs(hashes, exact), MOST_PAIRS * len(images)))
        if len(pairs) == MOST_PAIRS * len(images):
            continue
        united = _united(single, [[file[len(path) + 1 :] for file in pair] for pair in pairs])
        sizes = Counter(united.values())
        changed = {united[file] for file in united if united[file] != single[file]}
        if not changed:
            return None
        test = split_by_hash(images, united)["test"]
        largest = max(sizes[group] for group in changed)
        if FEWEST <= len(test) / len(images) <= MOST and largest <= max(LARGEST * len(images), 2):
            return united
    return None


def _united(groups: dict[str, str], pairs: Sequence[Sequence[str]]) -> dict[str, str]:
    """The groups after those of each pair of files became one."""
    name = {group: group for group in groups.values()}

    def find(group):
        while name[group] != group:
            group = name[group]
        return group

    for files in pairs:
        first, *others = sorted({find(groups[file]) for file in files}, key=lambda group: (len(group), group))
        for other in others:
            name[other] = first
    return {file: find(group) for file, group in groups.items()}


def write_copies(folder: Path, copies: Sequence[tuple[str, str]]):
    """Lists copies in a file of the run's folder."""
    with (folder / FILE).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("test image", "training image"), *copies])


def read_copies(folder: Path) -> list[str]:
    """The test images that a run's folder lists as copies."""
    if not (folder / FILE).is_file():
        return []
    with (folder / FILE).open(newline="", encoding="utf-8") as file:
        return [test for test, _ in csv.reader(file)][1:]


def copies_warning(folder: Path) -> list[str]:
    """What to say of copies in the test set of a run in a folder, with the accuracy on the other images."""
    from keras_vit.recipes.evaluation.predictions import read_predictions

    copies = set(read_copies(folder))
    if not copies:
        return []
    are = "image is a copy of one" if len(copies) == 1 else "images are copies of some"
    text = (
        f"{len(copies):,} test {are} that the model or its weights were trained on, or nearly so ({folder / FILE}): "
        "the accuracy is too high."
    )
    if (folder / TABLE).is_file():
        predictions = read_predictions(folder / TABLE)
        others = np.array([file not in copies for file in predictions.files])
        if others.any():
            right = int(predictions.right[others].sum())
            accuracy = percent_and_count(right, int(others.sum()), predictions.interval_of(others))
            text += f" Without them it is {', '.join(accuracy)}."
    return [text]


def in_two_classes(files: np.ndarray, labels: np.ndarray) -> list[tuple[str, str]]:
    """Pairs of files with the same content and different labels."""
    groups = [sorted((file.decode(), label) for file, label in zip(files, labels.tolist()))]
    for key in (os.path.getsize, _end_of, _hash_of):  # most files differ in what is read first
        parts = defaultdict(list)
        for number, group in enumerate(groups):
            for file, label in group:
                parts[number, key(file)].append((file, label))
        groups = [part for part in parts.values() if any(label != part[0][1] for _, label in part)]
    return [(group[0][0], file) for group in groups for file, label in group if label != group[0][1]]


def _end_of(file) -> bytes:
    with open(file, "rb") as content:
        content.seek(max(0, os.path.getsize(file) - 512))
        return content.read()


def _hash_of(file) -> bytes:
    return hashlib.sha256(Path(file).read_bytes()).digest()
