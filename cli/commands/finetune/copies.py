"""Copies of images between the splits of `keras-vit finetune`: with them in the test set, the accuracy is too high."""

import csv
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from keras_vit.images.rgb import open_image
from keras_vit.messages import first_names
from keras_vit.progress import Progress
from keras_vit.recipes.data.image_folder import GROUP_COLUMNS, split_by_hash
from keras_vit.recipes.prepare.outcomes import MIN_BITS_SET, HashIndex, fingerprint, map_in_threads

FILE, GROUPS = "copies.csv", "groups.csv"
NAMED = 5
MOST_PAIRS = 50  # of copies for each image; of more, all images are alike
FEWEST, MOST, LARGEST = 0.1, 0.35, 0.1  # parts of the images: of the test set, and of the largest group of copies


class ImageHashes:
    """Contents and perceptual hashes of files, each read once."""

    def __init__(self, files: Sequence[str]):
        progress = Progress("Looking for copies", len(files), "images")

        def read(file):
            try:
                with open_image(file) as image:
                    hashes = fingerprint(image)
            except Exception:  # Pillow's readers raise errors of many kinds; the training skips these files
                hashes = None
            return hashlib.sha256(Path(file).read_bytes()).digest(), hashes

        self.of = {}
        for file, value in zip(files, map_in_threads(read, files)):
            self.of[file] = value
            progress.add(1)
        progress.end()

    def copies(self, training: Sequence[str], test: Sequence[str]) -> list[tuple[str, str]]:
        """(test file, training file) of each test image that is identical or nearly identical to a training image.

        Such files have the same bytes, or images, also mirrored, whose perceptual hashes differ in at most 60 of 256
        bits, see `keras_vit.recipes.prepare.outcomes`. Files that cannot be decoded are no copies.
        """
        contents: dict[bytes, str] = {}
        for file in training:
            contents.setdefault(self.of[file][0], file)
        index, copies = self._index(training), []
        for file in test:
            content, _ = self.of[file]
            if content in contents:
                copies.append((file, contents[content]))
            elif self._has_structure(file) and (nearest := index.nearest(self.of[file][1])):
                copies.append((file, nearest[0]))
        return copies

    def all_pairs(self, exact: bool) -> Iterator[tuple[str, str]]:
        """Yields pairs of identical files and, unless `exact`, of nearly identical images, that connect all copies."""
        contents: dict[bytes, str] = {}
        for file, (content, _) in self.of.items():
            yield file, contents.setdefault(content, file)
        index = self._index([] if exact else [*self.of])
        for file in index.names:
            if self._has_structure(file):
                yield from ((file, other) for other in index.all_copies(self.of[file][1]))

    def _index(self, files) -> HashIndex:
        decoded = [file for file in files if self.of[file][1] is not None]
        return HashIndex(decoded, np.array([self.of[file][1][0] for file in decoded]))

    def _has_structure(self, file) -> bool:
        """The hashes of images with little structure, such as those of one color, are near each other."""
        hashes = self.of[file][1]
        return hashes is not None and np.bitwise_count(hashes[0]).sum() >= MIN_BITS_SET


def unite_copies(
    hashes: ImageHashes, path: str, images: list[tuple[str, str]], groups: dict[str, str]
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
        pairs = list(islice(hashes.all_pairs(exact), MOST_PAIRS * len(images)))
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


def write_groups(folder: Path, groups: dict[str, str] | None):
    """Lists the group of each image in a file of the run's folder; without any, there is no such file."""
    if not groups:
        (folder / GROUPS).unlink(missing_ok=True)
        return
    with (folder / GROUPS).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([GROUP_COLUMNS, *groups.items()])


def describe(copies: Sequence[tuple[str, str]], test_images: int) -> str:
    """A sentence on what the copies are and mean."""
    are = "is a copy of a training image" if len(copies) == 1 else "are copies of training images"
    return (
        f"{len(copies):,} of {test_images:,} test images {are}, or nearly so: the accuracy will be too high. "
        f"{first_names((f'{test} = {train}' for test, train in copies), NAMED)}. Remove the copies, or keep "
        "images that belong together on one side: --group, see keras-vit finetune --help"
    )


def write_copies(folder: Path, copies: Sequence[tuple[str, str]]):
    """Lists copies in a file of the run's folder; without any, there is no such file."""
    if not copies:
        (folder / FILE).unlink(missing_ok=True)  # of an earlier start, before the copies were removed
        return
    with (folder / FILE).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("test image", "training image"), *copies])


def count_copies(folder: Path) -> int:
    """Number of copies that a run's folder lists."""
    if not (folder / FILE).is_file():
        return 0
    with (folder / FILE).open(newline="", encoding="utf-8") as file:
        return sum(1 for _ in csv.reader(file)) - 1
