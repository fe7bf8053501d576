"""Files of a split that are numbered, as train-00000-of-00010: missing, mixed and truncated ones are found."""

import os
import re
import struct
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from keras_vit.name_list import first_names

PARALLEL_FILES = 16
NUMBERED = re.compile(r"(.+)-(\d+)-of-(\d+)[^/]*")
FRAME_BYTES = 16  # of a TFRecord, besides its data


def check_numbers(files: Iterable[str], existing: Iterable[str]):
    """Checks that all files of each split are there, and were written together.

    Args:
        files: Paths of the files to read; those without a number are ignored.
        existing: Paths of all files in their folders.

    Raises:
        ValueError: Files are missing, or were written at different times.
    """
    numbers, there = _numbers(files), _numbers(existing)
    totals: dict[str, list[str]] = {}
    for path, total in sorted(numbers):
        totals.setdefault(path, []).append(total)
        repeated = [f"{path}-{number}-of-{total}" for number, count in numbers[path, total].items() if count > 1]
        if repeated or len(totals[path]) > 1:
            mixed = repeated or [f"{path}-*-of-{total}" for total in totals[path]]
            raise ValueError(f"Files of several datasets are in one folder: {first_names(mixed)}. Keep those of one.")
        width = max(map(len, numbers[path, total]))
        expected = [f"{number:0{width}}" for number in range(int(total))]
        missing = [f"{path}-{number}-of-{total}" for number in expected if number not in there[path, total]]
        if missing:
            only = "; to use only the others, renumber them"
            raise _missing(missing, int(total), only)


def check_prepared(builder):
    """Checks the sizes of a prepared folder's files; the builder is one of TensorFlow Datasets.

    Raises:
        ValueError: A file is missing, or a TFRecord file is truncated.
    """
    for info in builder.info.splits.values():
        files = [os.fspath(file) for file in info.filepaths]
        with ThreadPoolExecutor(PARALLEL_FILES) as pool:
            sizes = list(pool.map(_size, files))
        missing = [file for file, size in zip(files, sizes) if size is None]
        if missing:
            raise _missing(missing, len(files))
        is_complete = sum(sizes) >= info.num_bytes + FRAME_BYTES * info.num_examples
        if is_complete or builder.info.file_format.value != "tfrecord":
            continue
        for file, expected in zip(files, info.shard_lengths):  # which one it is
            if (count := count_records(file)) != expected:
                raise ValueError(
                    f"{file} is truncated: it has {count:,} of {expected:,} images. Copy or write it again."
                )


def count_records(file: str) -> int:
    """Number of records in a TFRecord file: reads 12 bytes per record of a local file, all of a file on gs://.

    A record: its length (8 bytes), a checksum (4), the data, another checksum (4).

    Raises:
        ValueError: The file does not end with a record.
    """
    # Unbuffered Python files read only the requested bytes of local files.
    with tf.io.gfile.GFile(file, "rb") if "://" in file else open(file, "rb", buffering=0) as records:
        size, count, position = tf.io.gfile.stat(file).length, 0, 0
        while position < size and len(header := records.read(12)) == 12:
            position += FRAME_BYTES + struct.unpack("<Q", header[:8])[0]
            records.seek(min(position, size))
            count += 1
    if position != size:
        raise ValueError(
            f"{file} is truncated or damaged: its last record ends at byte {position:,}, but it has {size:,} bytes. "
            "Copy or write it again."
        )
    return count


def _missing(files, total, other_fix=""):
    count = f"{len(files):,} of {total:,} files are missing"
    return ValueError(f"{count}: {first_names(files)}. Copy or write them again{other_fix}.")


def _size(file):
    try:
        return tf.io.gfile.stat(file).length
    except tf.errors.NotFoundError:
        return None


def _numbers(files):
    """How many files have each number: by the path before it and the number of files after it."""
    found: dict[tuple[str, str], Counter] = {}
    for match in filter(None, map(NUMBERED.fullmatch, files)):
        path, number, total = match.groups()
        found.setdefault((path, total), Counter())[number] += 1
    return found
