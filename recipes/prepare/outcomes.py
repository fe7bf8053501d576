"""Reads one image file and determines its outcome: stored, unreadable, or a duplicate of a test image.

The reports of skipped images are a CSV file for each reason and split. Everything here can be sent to other machines.

Copies are found by a perceptual hash of 256 bits (W words of 64 bits), here of P images. It is "pHash" (N. Krawetz,
"Looks Like It", hackerfactor.com, 2011) with 16 x 16 coefficients instead of 8 x 8: the gray image at 32 x 32 pixels,
its cosine transform, and for each of the lowest coefficients whether it is above their median. A mirrored image has the
same coefficients, with those of odd horizontal frequency negated: both hashes cost one transform, and every search
finds mirrored copies too. docs/results.md has the measurements of the threshold: at 60 of 256 bits, all re-encoded or
downsized copies are found and 99 % of those cropped by 5 %, and about one of 1e9 pairs of different photographs is a
false positive; with the usual hash of 64 bits it would be thousands.
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
from scipy.fft import dctn

from keras_vit.images.rgb import as_rgb, open_image, turned_upright
from keras_vit.recipes.data.image_folder import class_of

THRESHOLD_BITS = 60
# Hashes of photographs have about 128 bits set. Flat or symmetric images determine few coefficients: their hashes are
# all near each other.
MIN_BITS_SET = 96
PIXELS, FREQUENCIES = 32, 16
SIGNS_OF_MIRRORED = np.where(np.arange(FREQUENCIES) % 2, -1.0, 1.0)


def fingerprint(image: Image.Image) -> np.ndarray:
    """Hashes an image, turned upright, and its mirror image: (2, W) uint64.

    A JPEG file that is opened but not loaded is decoded at a fraction of its size, which is twice as fast.
    """
    image.draft("L", (4 * PIXELS, 4 * PIXELS))
    gray = Image.fromarray(as_rgb(image)).convert("L").resize((PIXELS, PIXELS), Image.Resampling.LANCZOS)
    lowest = np.round(dctn(np.asarray(gray, "float64"))[:FREQUENCIES, :FREQUENCIES], 6)
    both = np.stack([lowest, lowest * SIGNS_OF_MIRRORED]).reshape(2, -1)  # (2, 256)
    bits = both > np.median(both, axis=-1, keepdims=True)
    return np.packbits(bits, axis=-1).view("uint64")  # (2, W)


def check_threshold(bits: int):
    """Raises ValueError for a number of different bits that does not separate copies from other images."""
    if not 0 <= bits <= 128:
        raise ValueError(
            "`threshold_bits` must be in [0, 128]: hashes have 256 bits, and those of any two images differ in about "
            f"128. The measured default is {THRESHOLD_BITS}. Received: {bits}"
        )


class HashIndex:
    """Hashes of images, searched by brute force: exact, and cheaper than decoding the query image.

    With 100,000 images a search takes about a millisecond, and the index 3 MB plus the names.

    `threshold_bits` is the largest number of different bits, of 256, for two images to be copies. Images with little
    structure (one color, symmetric, few bits set) are copies only if no bit differs.
    """

    def __init__(self, names: Iterable[str], hashes: np.ndarray, threshold_bits: int = THRESHOLD_BITS):
        check_threshold(threshold_bits)
        self.names = list(names)
        self.words = np.ascontiguousarray(np.transpose(hashes))  # (W, P): one word of all images at a time
        self.threshold_bits = threshold_bits

    def nearest(self, hashes: np.ndarray) -> tuple[str, int, bool] | None:
        """Searches for the image that a query image is a copy of.

        It is (name, different bits, whether the copy is mirrored), or None if none is within the threshold.
        """
        if not self.names:
            return None
        distances, limit = self._search(hashes)
        mirrored, index = np.unravel_index(np.argmin(distances), distances.shape)
        if distances[mirrored, index] > limit:
            return None
        return self.names[index], int(distances[mirrored, index]), bool(mirrored)

    def all_copies(self, hashes: np.ndarray) -> list[str]:
        """The names of all images within the threshold of a query image."""
        distances, limit = self._search(hashes)
        return [self.names[index] for index in np.flatnonzero(distances.min(0) <= limit)]

    def _search(self, hashes) -> tuple[np.ndarray, int]:
        """The different bits to each image, (2, P), and the largest number of them for a copy."""
        limit = self.threshold_bits if int(np.bitwise_count(hashes[0]).sum()) >= MIN_BITS_SET else 0
        return np.stack([self._distances(words) for words in hashes]), limit

    def _distances(self, words):
        total = np.zeros(len(self.names), "uint16")  # up to 256: too large for uint8
        for stored, word in zip(self.words, words):
            total += np.bitwise_count(stored ^ word)
        return total  # (P,)


STORED, UNREADABLE, DUPLICATE = "stored", "unreadable", "duplicate"
FILES = {UNREADABLE: "unreadable-{}.csv", DUPLICATE: "duplicates-{}.csv"}
COLUMNS = {UNREADABLE: ("image", "error"), DUPLICATE: ("image", "copy_of", "different_bits", "mirrored")}
TURNED_QUALITY = 95  # of JPEG files that are stored turned
# Errors that persist; others, such as a lost connection, are raised.
NO_FILE = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.PermissionDeniedError)


def examine(name: str, path: str, test_images: HashIndex | None = None):
    """Reads and decodes one image of the source.

    Returns:
        (STORED, name, example), (UNREADABLE, name, (error,)), or (DUPLICATE, name, (test image, different bits,
        whether it is mirrored)). The example has "image", see `encode`, "file_name" and "label", the class.
    """

    def outcome():
        content = _read(name, path)
        hashes = _fingerprint(content)
        duplicate = test_images.nearest(hashes) if test_images else None
        if duplicate:
            return DUPLICATE, name, duplicate
        return STORED, name, {"image": encode(content), "file_name": name, "label": class_of(name)}

    return _or_unreadable(name, outcome)


def hash_file(name: str, path: str):
    """Hashes a test image: (STORED, name, hash (W,) uint64) or (UNREADABLE, name, (error,))."""
    return _or_unreadable(name, lambda: (STORED, name, _fingerprint(_read(name, path))[0]))


def map_in_threads(function, items: Iterable, *arguments) -> Iterator:
    """Yields function(item, *arguments) of each item, in order; at most 64 results are in memory."""
    items = iter(items)
    with ThreadPoolExecutor(8) as pool:
        while names := list(islice(items, 64)):
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
    with open_image(io.BytesIO(content)) as image:
        return fingerprint(image)


def encode(content: bytes) -> bytes:
    """The content of an image file as TensorFlow reads it.

    It is the file itself if that is a JPEG or PNG file, otherwise the (first) image in it as PNG, with 16 bits if it
    has more than 8. An image whose EXIF orientation is not upright is turned and encoded again. Damaged files raise
    errors of many kinds.
    """
    with open_image(io.BytesIO(content)) as opened:
        image, is_jpeg = turned_upright(opened), opened.format in ("JPEG", "MPO")  # MPO: a JPEG file, then another
        if image is opened and (is_jpeg or opened.format == "PNG"):
            return content
        if is_jpeg:
            jpeg = io.BytesIO()
            image.save(jpeg, "JPEG", quality=TURNED_QUALITY, subsampling=0)
            return jpeg.getvalue()
        if opened.format != "PNG":
            # Of more than 8 bits, `decode` and `as_rgb` use the first 8.
            image = _to_16_bits(image) if image.mode.startswith("I") else Image.fromarray(as_rgb(opened))
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
