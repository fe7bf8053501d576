"""Reads one image file and determines its outcome: stored, unreadable, or a duplicate of a test image.

The reports of skipped images are a CSV file for each reason and split. Everything here can be sent to other machines.
"""

import csv
import io
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import tensorflow as tf
from etils import epath
from PIL import Image, UnidentifiedImageError

from keras_vit.recipes.prepare.duplicates import HashIndex, fingerprint, turned_upright

STORED, UNREADABLE, DUPLICATE = "stored", "unreadable", "duplicate"
FILES = {UNREADABLE: "unreadable-{}.csv", DUPLICATE: "duplicates-{}.csv"}
COLUMNS = {UNREADABLE: ("image", "error"), DUPLICATE: ("image", "copy_of", "different_bits", "mirrored")}
TURNED_QUALITY = 95  # of JPEG files that are stored turned
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
# Errors that persist; others, such as a lost connection, are raised.
NO_FILE = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.PermissionDeniedError)


def examine(name: str, path: str, test_images: HashIndex | None = None):
    """Reads and decodes one image of the source.

    Args:
        name: "<class>/<file>".
        path: The folder of the classes.
        test_images: Images whose copies are duplicates.

    Returns:
        (STORED, name, example), (UNREADABLE, name, (error,)), or (DUPLICATE, name, (test image, different bits,
        whether it is mirrored)). The example has "image", "file_name" and "label", the class. Its image is the file
        itself if that is a JPEG or PNG file, otherwise the (first) image in it as PNG, with 16 bits if it has more
        than 8. An image whose EXIF orientation is not upright is turned and encoded again.
    """

    def outcome():
        content = _read(name, path)
        hashes = _fingerprint(content)
        duplicate = test_images.nearest(hashes) if test_images else None
        if duplicate:
            return DUPLICATE, name, duplicate
        return STORED, name, {"image": _encode(content), "file_name": name, "label": name.split("/")[0]}

    return _or_unreadable(name, outcome)


def hash_file(name: str, path: str):
    """Hashes a test image: (STORED, name, hash (W,) uint64) or (UNREADABLE, name, (error,))."""
    return _or_unreadable(name, lambda: (STORED, name, _fingerprint(_read(name, path))[0]))


def map_in_threads(function, items: Iterable, *arguments, num_threads: int = 8, block: int = 64) -> Iterator:
    """Yields function(item, *arguments) of each item, in order; at most `block` results are in memory."""
    items = iter(items)
    with ThreadPoolExecutor(num_threads) as pool:
        while names := list(islice(items, block)):
            yield from pool.map(lambda item: function(item, *arguments), names)


def _or_unreadable(name, outcome):
    try:
        return outcome()
    except NO_FILE as error:
        return UNREADABLE, name, (error.message,)
    except UnidentifiedImageError:
        return UNREADABLE, name, ("unknown image format",)
    except (MemoryError, tf.errors.OpError):
        raise
    except Exception as error:  # damaged files make Pillow raise nearly anything
        return UNREADABLE, name, (f"{type(error).__name__}: {error}",)


def _read(name, path):
    local = os.path.join(path, name)
    if "://" not in path and os.path.exists(local) and not os.path.isfile(local) and not os.path.isdir(local):
        raise ValueError("not a regular file")  # reading a named pipe would block
    with tf.io.gfile.GFile(tf.io.gfile.join(path, name), "rb") as file:
        return file.read()


def _fingerprint(content):
    with Image.open(io.BytesIO(content)) as image:
        return fingerprint(image)


def _encode(content):
    with Image.open(io.BytesIO(content)) as opened:
        image, is_jpeg = turned_upright(opened), opened.format in ("JPEG", "MPO")  # MPO: a JPEG file, then another
        if image is opened and (is_jpeg or opened.format == "PNG"):
            return content
        if is_jpeg:
            jpeg = io.BytesIO()
            image.save(jpeg, "JPEG", quality=TURNED_QUALITY, subsampling=0)
            return jpeg.getvalue()
        if image.mode not in PNG_MODES:
            # `convert` would clip integers of more than 8 bits at 255.
            image = _to_16_bits(image) if image.mode.startswith("I") else image.convert("RGB")
        png = io.BytesIO()
        image.save(png, "PNG")
        return png.getvalue()


def _to_16_bits(image):
    return Image.fromarray(np.clip(np.asarray(image), 0, 65535).astype("uint16"))


@dataclass(frozen=True)
class Counts:
    """Numbers of a split's skipped and stored images and of its files; the last two are None after a dry run."""

    unreadable: int
    duplicates: int
    stored: int | None = None
    shards: int | None = None


def write_skipped(skipped: list, split: str, folder: epath.Path):
    """Writes both reports of a split, of what `examine` returned for these images, sorted by the images' names."""
    folder.mkdir(parents=True, exist_ok=True)
    for reason, columns in COLUMNS.items():
        rows = sorted((name, *details) for outcome, name, details in skipped if outcome == reason)
        with (folder / FILES[reason].format(split)).open("w") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def count_skipped(split: str, folder: epath.Path) -> Counts:
    """Reads the reports of a split."""
    counts = {}
    for reason, name in FILES.items():
        with (folder / name.format(split)).open() as file:
            counts[reason] = sum(1 for _ in csv.reader(file)) - 1
    return Counts(counts[UNREADABLE], counts[DUPLICATE])
