"""What `keras-vit finetune` sees in the files: which are no images, their shapes and range, copies between the splits.

With copies of training images among the test images, the accuracy is too high.
"""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from keras_vit.images.rgb import open_image
from keras_vit.messages import first_names
from keras_vit.progress import Progress
from keras_vit.recipes.prepare.outcomes import MIN_BITS_SET, HashIndex, fingerprint, map_in_threads

FILE = "copies.csv"
NAMED = 5
LONG = 0.75  # shorter side / longer side, that of 4:3: of longer images a central square is less
DARK = 2**14  # a quarter of the range of 16 bits


class ImageFile(NamedTuple):
    """An image file.

    Attributes:
        aspect: Shorter side / longer side.
        brightest: The largest value of a gray image of 16 bits; None for other images.
    """

    aspect: float
    brightest: int | None


def look_at(file: str) -> ImageFile | None:
    """What a file is; None if it is no image for Pillow. Only images of 16 bits are decoded."""
    try:
        with open_image(file) as image:
            deep = image.mode.startswith("I")
            return ImageFile(min(image.size) / max(image.size), int(image.getextrema()[1]) if deep else None)
    except Exception:  # Pillow's readers raise errors of many kinds for damaged files
        return None


def notes_on_range(images: Iterable[ImageFile]) -> Iterator[str]:
    """Yields a sentence if images of 16 bits are so dark that their upper 8 bits, which are used, say little."""
    values = [image.brightest for image in images if image.brightest is not None]
    if values and max(values) < DARK:
        bits = max(values).bit_length()
        yield (
            f"{len(values):,} images have 16 bits, but no value above {max(values):,}. Their upper 8 bits are used: "
            f"{max(values) // 256 + 1} gray levels of 256 are left, all dark. Multiply their pixels by "
            f"{2 ** (16 - bits)}"
        )


def typical_aspect(images: Iterable[ImageFile]) -> float:
    """Median of shorter side / longer side."""
    return median(image.aspect for image in images)


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
