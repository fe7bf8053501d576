"""Opens TFRecord files that TensorFlow Datasets did not write: a tf.train.Example for each image.

Missing, mixed and truncated files are found, also those of TensorFlow Datasets.
"""

import logging
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_vit.class_names import checked_lines
from keras_vit.messages import error_summary, first_names
from keras_vit.recipes.data.image_dataset import ImageDataset, name_by_index, select_ranges, split_ranges

# Features of the image and its label: those of the usual ImageNet files, or short ones.
FEATURE_KEYS = (("image/encoded", "image/class/label"), ("image", "label"))
CLASS_FILES = ("labels.txt", "classes.txt")
CHECKED_RECORDS, CHECKED_FILES = 2_000, 8
PARALLEL_FILES = 16
NUMBERED = re.compile(r"(.+)-(\d+)-of-(\d+)[^/]*")
FRAME_BYTES = 16  # of a TFRecord, besides its data


def open_tfrecords(pattern: str, name: str) -> ImageDataset:
    """Finds the files of a folder or a glob and counts their images.

    It reads 12 bytes per record of a local file, all of a file on gs://. A file's split is the word before the number
    of the shard: "train" of train-00000-of-01024 and of imagenet2012-train.tfrecord-00000-of-01024. The same folder
    has labels.txt or classes.txt with a class name on each line, from label 0 on. (The usual ImageNet files count from
    1: their first line is "background".)
    """
    if tf.io.gfile.isdir(pattern):  # whose name may be a pattern of others
        files = [tf.io.gfile.join(pattern, name.rstrip("/")) for name in tf.io.gfile.listdir(pattern)]
    else:
        files = tf.io.gfile.glob(pattern)
    files = sorted(file for file in files if re.search(r"tfrecord|-of-\d+$", file.rsplit("/")[-1]))
    if not files:
        raise ValueError(f"There are no TFRecord files at {pattern}, such as train-00000-of-00010 or train.tfrecord.")
    folders = {file.rpartition("/")[0] for file in files}
    # Of a glob: files that it omits are not missing.
    existing = [tf.io.gfile.join(folder, name) for folder in folders for name in tf.io.gfile.listdir(folder or ".")]
    check_numbers(files, existing)
    class_names = _read_class_names(files[0].rpartition("/")[0])
    checked = np.linspace(0, len(files) - 1, min(len(files), CHECKED_FILES)).astype(int)  # may be sorted by class
    keys = _check_files([files[i] for i in checked], len(class_names))
    logging.getLogger(__name__).info("Counting the images of %d TFRecord files", len(files))
    with ThreadPoolExecutor(PARALLEL_FILES) as pool:
        counts = list(pool.map(count_records, files))
    shards: dict[str, list[tuple]] = {}
    for file, count in zip(files, counts):
        shards.setdefault(_split_name(file), []).append((file, count))
    splits = {split: sum(count for _, count in split_files) for split, split_files in shards.items()}

    def read(split, seed=None):
        ranges = select_ranges(shards, split_ranges(splits, split, name))
        return _read_ranges(ranges, keys, len(class_names), seed)

    return ImageDataset(name, class_names, splits, read, read_shuffled=read)


def _read_ranges(ranges, keys, num_classes, seed):
    """Reads (file, start, end) of records, several files at a time, in this order or in one drawn from a seed."""
    image_key, label_key = keys
    features = {image_key: tf.io.FixedLenFeature((), tf.string), label_key: tf.io.FixedLenFeature((), tf.int64)}

    def read_records(file, start, end):
        records = tf.data.TFRecordDataset(file).enumerate().skip(start).take(end - start)
        return records.map(lambda index, record: (tf.strings.join([file, name_by_index("", index)]), record))

    def to_example(name, record):
        parsed = tf.io.parse_single_example(record, features)
        label = parsed[label_key]
        is_named = (0 <= label) & (label < num_classes)
        message = [name, "has the label", label, _unnamed_label(num_classes)]
        with tf.control_dependencies([tf.debugging.Assert(is_named, message)]):
            return name, parsed[image_key], tf.identity(label)

    files, starts, ends = zip(*ranges) if ranges else ((), (), ())
    ranges = tf.data.Dataset.from_tensor_slices(
        (tf.constant(files, tf.string), tf.constant(starts, tf.int64), tf.constant(ends, tf.int64))
    )
    if seed is not None:
        ranges = ranges.shuffle(max(len(files), 1), seed=seed, reshuffle_each_iteration=False)
    return ranges.interleave(
        read_records, cycle_length=PARALLEL_FILES, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    ).map(to_example, tf.data.AUTOTUNE)


def _read_class_names(folder):
    for name in CLASS_FILES:
        file = tf.io.gfile.join(folder, name)
        if tf.io.gfile.exists(file):
            with tf.io.gfile.GFile(file) as lines:
                return tuple(checked_lines([line.strip("\ufeff").strip() for line in lines]))
    raise ValueError(f"{folder} has no {' or '.join(CLASS_FILES)}. Create one with a class name on each line.")


def _check_files(files, num_classes):
    """Checks the first images of some files; returns the keys of the image and of the label."""
    keys = None
    for file in files:
        for features in _read_features(file, CHECKED_RECORDS // len(files)):
            keys = keys or next((pair for pair in FEATURE_KEYS if set(pair) <= set(features)), None)
            if keys is None or not set(keys) <= set(features):
                expected = " or ".join(" and ".join(pair) for pair in FEATURE_KEYS)
                raise ValueError(f"{file}: expected the features {expected}. Received: {sorted(features)}")
            labels = features[keys[1]].int64_list.value
            if len(labels) != 1:
                raise ValueError(
                    f"{file}: {keys[1]!r} must be an int64_list with one integer, the label. Received: "
                    f"{features[keys[1]].WhichOneof('kind')} with {len(labels)} integers"
                )
            if not 0 <= labels[0] < num_classes:
                raise ValueError(f"{file} has the label {labels[0]}, {_unnamed_label(num_classes)}")
    if keys is None:
        raise ValueError(f"{', '.join(files)} have no images.")
    return keys


def _unnamed_label(num_classes):
    return (
        f"but {' or '.join(CLASS_FILES)} names {num_classes} classes, from 0 on. Add the missing names; where labels "
        'count from 1, a first line such as "background".'
    )


def _read_features(file, count):
    """Yields the features, by name, of the first images of a file."""
    try:
        for record in tf.data.TFRecordDataset(file).take(count).as_numpy_iterator():
            yield tf.train.Example.FromString(record).features.feature
    except (tf.errors.DataLossError, DecodeError) as error:
        raise ValueError(
            f"{file} cannot be read as TFRecords: it is damaged or compressed. Write it again, uncompressed "
            f"({error_summary(error)})."
        ) from error


def _split_name(file):
    name = re.sub(r"(-\d+-of-\d+)$", "", file.rpartition("/")[2])
    name = re.sub(r"[.]tfrecords?(-\d+-of-\d+)?$", "", name)
    return name.rpartition("-")[2]


def check_numbers(files: Iterable[str], existing: Iterable[str]):
    """Raises ValueError if numbered files among `existing` are missing, or `files` were written at different times."""
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
    """Raises ValueError if a file of a builder of TensorFlow Datasets is missing, or a TFRecord file truncated."""
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

    A record: its length (8 bytes), a checksum (4), the data, another checksum (4). A file that does not end with a
    record raises ValueError.
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
    counts: dict[tuple[str, str], Counter] = {}
    for match in filter(None, map(NUMBERED.fullmatch, files)):
        path, number, total = match.groups()
        counts.setdefault((path, total), Counter())[number] += 1
    return counts
