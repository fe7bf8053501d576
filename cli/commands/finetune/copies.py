"""Copies of training images among the test images of `keras-vit finetune`: with them, the accuracy is too high."""

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_vit.images.rgb import open_image
from keras_vit.messages import first_names
from keras_vit.progress import Progress
from keras_vit.recipes.prepare.outcomes import MIN_BITS_SET, HashIndex, fingerprint, map_in_threads

FILE = "copies.csv"
NAMED = 5


def find_copies(training: Sequence[str], test: Sequence[str]) -> list[tuple[str, str]]:
    """(test file, training file) of each test image that is identical or nearly identical to a training image.

    Such files have the same bytes, or images, also mirrored, whose perceptual hashes differ in at most 60 of 256 bits,
    see `keras_vit.recipes.prepare.outcomes`. Files that cannot be decoded are no copies.
    """
    progress = Progress("Looking for copies", len(training) + len(test), "images")

    def read(file):
        try:
            with open_image(file) as image:
                hashes = fingerprint(image)
        except Exception:  # Pillow's readers raise errors of many kinds; the training skips these files
            hashes = None
        return hashlib.sha256(Path(file).read_bytes()).digest(), hashes

    contents: dict[bytes, str] = {}
    names, seen = [], []
    for file, (content, hashes) in zip(training, map_in_threads(read, training)):
        contents.setdefault(content, file)
        if hashes is not None:
            names.append(file)
            seen.append(hashes[0])
        progress.add(1)
    index = HashIndex(names, np.array(seen))
    copies = []
    for file, (content, hashes) in zip(test, map_in_threads(read, test)):
        progress.add(1)
        if content in contents:
            copies.append((file, contents[content]))
        # The hashes of images with little structure, such as those of one color, are near each other.
        elif hashes is not None and np.bitwise_count(hashes[0]).sum() >= MIN_BITS_SET:
            if nearest := index.nearest(hashes):
                copies.append((file, nearest[0]))
    progress.end()
    return copies


def describe(copies: Sequence[tuple[str, str]], test_images: int) -> str:
    """A sentence on what the copies are and mean."""
    are = "image is a copy" if len(copies) == 1 else "images are copies"
    return (
        f"{len(copies):,} of {test_images:,} test {are} of training images, or nearly so: the accuracy will be too "
        f"high. {first_names((f'{test} = {train}' for test, train in copies), NAMED)}. Remove the copies, or keep "
        "images that belong together on one side: --group, see keras-vit finetune --help"
    )


def write_copies(folder: Path, copies: Sequence[tuple[str, str]]):
    """Lists copies in a file of the run's folder."""
    with (folder / FILE).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("test image", "training image"), *copies])


def count_copies(folder: Path) -> int:
    """Number of copies that a run's folder lists."""
    if not (folder / FILE).is_file():
        return 0
    with (folder / FILE).open(newline="", encoding="utf-8") as file:
        return sum(1 for _ in csv.reader(file)) - 1
