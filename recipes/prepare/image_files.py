"""What an image file becomes in a data set. Everything here can be sent to other machines."""

import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import tensorflow as tf
from PIL import Image, UnidentifiedImageError

from keras_vit.recipes.prepare.duplicates import KnownImages, fingerprint

KEPT, UNREADABLE, DUPLICATE = "kept", "unreadable", "duplicate"
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
# What no second attempt mends; other errors of reading, such as a lost connection, are raised.
NO_FILE = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.PermissionDeniedError)


def examine(name: str, path: str, known: KnownImages | None = None):
    """Reads and decodes one image.

    Returns:
        (KEPT, name, example), (UNREADABLE, name, (error,)), or (DUPLICATE, name, (known image, bits that differ,
        whether it is mirrored)). The example's image is the file as it is if that is a JPEG or PNG file, else the
        (first) image in it as PNG, with 16 bits if it has more than 8; its label is the folder's name.
    """

    def outcome():
        content = _read(name, path)
        hashes = _fingerprint(content)
        copied = known.nearest(hashes) if known else None
        if copied:
            return DUPLICATE, name, copied
        return KEPT, name, {"image": _encoded(content), "file_name": name, "label": name.split("/")[0]}

    return _or_unreadable(name, outcome)


def hashed(name: str, path: str):
    """As `examine`, for a test image: (KEPT, name, hash (W,) uint64) or (UNREADABLE, name, (error,))."""
    return _or_unreadable(name, lambda: (KEPT, name, _fingerprint(_read(name, path))[0]))


def in_threads(function, items: Iterable, *arguments, threads: int = 8, block: int = 64) -> Iterator:
    """function(item, *arguments) of each item, in order; no more than a block of results waits in memory."""
    items = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        while names := list(islice(items, block)):
            yield from pool.map(lambda item: function(item, *arguments), names)


def _or_unreadable(name, outcome):
    try:
        return outcome()
    except NO_FILE as error:
        return UNREADABLE, name, (error.message,)
    except UnidentifiedImageError:
        return UNREADABLE, name, ("no image of a known format",)
    except (MemoryError, tf.errors.OpError):
        raise
    except Exception as error:  # damaged files make Pillow raise nearly anything
        return UNREADABLE, name, (f"{type(error).__name__}: {error}",)


def _read(name, path):
    with tf.io.gfile.GFile(tf.io.gfile.join(path, name), "rb") as file:
        return file.read()


def _fingerprint(content):
    with Image.open(io.BytesIO(content)) as image:
        return fingerprint(image)


def _encoded(content):
    with Image.open(io.BytesIO(content)) as image:
        if image.format in ("JPEG", "MPO", "PNG"):  # MPO: a JPEG file with a second image behind the first
            return content
        if image.mode not in PNG_MODES:
            # `convert` would clip integers of more than 8 bits at 255.
            image = _of_16_bits(image) if image.mode.startswith("I") else image.convert("RGB")
        png = io.BytesIO()
        image.save(png, "PNG")
        return png.getvalue()


def _of_16_bits(image):
    return Image.fromarray(np.clip(np.asarray(image), 0, 65535).astype("uint16"))
