"""Copies of images: identical files, and nearly identical images, also mirrored.

Their perceptual hashes differ in at most 60 of 256 bits, see `keras_vit.recipes.prepare.outcomes`. With copies of
training images in the test set, the accuracy is too high.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit.images.rgb import open_image
from keras_vit.messages import first_names
from keras_vit.progress import Progress
from keras_vit.recipes.data import ImageDataset, count_examples, decoded_images
from keras_vit.recipes.prepare.outcomes import MIN_BITS_SET, HashIndex, fingerprint, map_in_threads

NAMED = 5
BATCH_SIZE = 64
# SHA-256 of the content, and the hashes of `fingerprint`, by the name of an image; None for what cannot be decoded.
Hashes = dict[str, tuple[bytes, np.ndarray | None]]


def hash_files(files: Sequence[str]) -> Hashes:
    """Hashes local files."""
    progress, hashes = Progress("Looking for copies", len(files), "images"), {}

    def read(file):
        try:
            with open_image(file) as image:
                perceptual = fingerprint(image)
        except Exception:  # Pillow's readers raise errors of many kinds; the training skips these files
            perceptual = None
        return hashlib.sha256(Path(file).read_bytes()).digest(), perceptual

    for file, value in zip(files, map_in_threads(read, files)):
        hashes[file] = value
        progress.add(1)
    progress.end()
    return hashes


def hash_split(dataset: ImageDataset, split: str, max_corrupt: float = 1.0) -> Hashes:
    """Hashes the decoded images of a split."""
    progress = Progress(f"Looking for copies in {split} of {dataset.name}", count_examples(dataset, split), "images")
    hashes: Hashes = {}
    names: list[str] = []
    for images, _ in decoded_images(dataset, split, BATCH_SIZE, max_corrupt, names=names):
        for name, image in zip(names, images):
            content = hashlib.sha256(repr(image.shape).encode() + image.tobytes()).digest()
            hashes[name] = content, fingerprint(Image.fromarray(image))
        progress.add(len(images))
    progress.end()
    return hashes


def find_copies(training: Hashes, test: Hashes) -> list[tuple[str, str]]:
    """(test image, training image) of each test image that is a copy of a training image."""
    contents: dict[bytes, str] = {}
    for name, (content, _) in training.items():
        contents.setdefault(content, name)
    index, copies = _index(training), []
    for name, (content, hashes) in test.items():
        if content in contents:
            copies.append((name, contents[content]))
        elif hashes is not None and _has_structure(hashes) and (nearest := index.nearest(hashes)):
            copies.append((name, nearest[0]))
    return copies


def copied_pairs(images: Hashes, exact: bool) -> Iterator[tuple[str, str]]:
    """Yields pairs of identical images and, unless `exact`, of nearly identical ones, which connect all copies."""
    contents: dict[bytes, str] = {}
    for name, (content, _) in images.items():
        yield name, contents.setdefault(content, name)
    index = _index({} if exact else images)
    for name in index.names:
        hashes = images[name][1]
        if hashes is not None and _has_structure(hashes):
            yield from ((name, other) for other in index.all_copies(hashes))


def describe_copies(copies: Sequence[tuple[str, str]], test_images: int) -> str:
    """A sentence on what the copies are and mean."""
    are = "is a copy of a training image" if len(copies) == 1 else "are copies of training images"
    return (
        f"{len(copies):,} of {test_images:,} test images {are}, or nearly so: the accuracy is too high. "
        f"{first_names((f'{test} = {train}' for test, train in copies), NAMED)}"
    )


def _index(images: Hashes) -> HashIndex:
    decoded = {name: hashes[0] for name, (_, hashes) in images.items() if hashes is not None}
    return HashIndex(decoded, np.array([*decoded.values()]))


def _has_structure(hashes) -> bool:
    """The hashes of images with little structure, such as those of one color, are near each other."""
    return np.bitwise_count(hashes[0]).sum() >= MIN_BITS_SET
