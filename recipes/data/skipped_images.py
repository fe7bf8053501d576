"""Undecodable images that were skipped: each is named once in a process, and counted in each run."""

import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

_reads: Counter[tuple[str, str]] = Counter()  # by dataset and image
_named: set[tuple[str, str]] = set()


def count_skipped(dataset: str, names: Iterable[str | bytes]):
    """Counts one read of each image, and prints those to standard error that this process has not named yet.

    Args:
        dataset: Name of the dataset; others may have images of the same names.
        names: Names of images; bytes of UTF-8, as TensorFlow returns them, or text.
    """
    images = [(dataset, name.decode("utf-8", "replace") if isinstance(name, bytes) else name) for name in names]
    _reads.update(images)
    if new := [image for image in dict.fromkeys(images) if image not in _named]:
        _named.update(new)
        with suppress(OSError):  # a closed standard error is no reason to end a training
            print(f"Skipping undecodable images: {', '.join(name for _, name in new)}", file=sys.stderr, flush=True)


def mark_named(dataset: str, names: Iterable[str]):
    """Notes that the user has been given these names in another message."""
    _named.update((dataset, name) for name in names)


def skipped_summary() -> str:
    """How many images were skipped since the last call and how often; "" if none was."""
    if not _reads:
        return ""
    images, reads = len(_reads), _reads.total()
    _reads.clear()
    return (
        f"Skipped undecodable images: {images:,}, in {reads:,} read{'s' if reads > 1 else ''}. Their names are above."
    )
