"""Undecodable images that were skipped: each is named once in a process, and again at the end of each run."""

import sys
from collections.abc import Iterable
from contextlib import suppress

from keras_vit.name_list import first_names

_skipped: dict[tuple[str, str], None] = {}  # dataset and image, in the order of their first reads
_named: set[tuple[str, str]] = set()


def count_skipped(dataset: str, names: Iterable[str | bytes]):
    """Counts images, and prints those to standard error that this process has not named yet.

    Args:
        dataset: Name of the dataset; others may have images of the same names.
        names: Names of images; bytes of UTF-8, as TensorFlow returns them, or text.
    """
    images = [(dataset, name.decode("utf-8", "replace") if isinstance(name, bytes) else name) for name in names]
    _skipped.update(dict.fromkeys(images))
    if new := [image for image in dict.fromkeys(images) if image not in _named]:
        _named.update(new)
        with suppress(OSError):  # a closed standard error is no reason to end a training
            print(f"Skipping undecodable images: {', '.join(name for _, name in new)}", file=sys.stderr, flush=True)


def mark_named(dataset: str, names: Iterable[str]):
    """Notes that the user has been given these names in another message."""
    _named.update((dataset, name) for name in names)


def skipped_summary() -> str:
    """How many images were skipped since the last call, and the first names; "" if none was."""
    names = [name for _, name in _skipped]
    _skipped.clear()
    return f"Skipped undecodable images: {len(names):,} ({first_names(names)})" if names else ""
