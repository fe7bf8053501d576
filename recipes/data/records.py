"""TFRecord files of tf.train.Example, one an image, that TensorFlow Datasets did not write."""

import logging
import re
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_vit.recipes.data.splits import numbered, parts

# The image and its number: as in ImageNet's usual files, or in short.
KEYS = (("image/encoded", "image/class/label"), ("image", "label"))
NAMES = ("labels.txt", "classes.txt")
NAMED = " or ".join(NAMES)
READERS = 16
PEEKED, PEEKED_FILES = 2_000, 8


def open_records(pattern: str) -> tuple:
    """Finds the files and counts their images, once: here 12 bytes of each are read, from gs:// all.

    A file's split is what its name says before the number of the shard: "train" of train-00000-of-01024 and of
    imagenet2012-train.tfrecord-00000-of-01024. Beside the files lies labels.txt or classes.txt, with the name of a
    class in each line, from number 0 on. (ImageNet's usual files count from 1: their first line is "background".)

    Args:
        pattern: A folder or a glob, local or on gs://.

    Returns:
        Class names, splits and `read` of a `ImageDataset`.

    Raises:
        ValueError: There are no files, they are compressed or damaged, there are no names of the classes, no known
            features, or numbers without a name. What the first look did not see is an error when it is read.
    """
    if tf.io.gfile.isdir(pattern):
        pattern = tf.io.gfile.join(pattern, "*")
    files = sorted(file for file in tf.io.gfile.glob(pattern) if re.search(r"tfrecord|-of-\d+$", file.rsplit("/")[-1]))
    if not files:
        raise ValueError(f"There are no TFRecord files at {pattern}, such as train-00000-of-00010 or train.tfrecord.")
    class_names = _class_names(files[0].rpartition("/")[0])
    places = np.linspace(0, len(files) - 1, min(len(files), PEEKED_FILES)).astype(int)  # files may be sorted by class
    keys = _checked([files[place] for place in places], class_names)
    logging.getLogger(__name__).info("Counting the images of %d TFRecord files", len(files))
    with ThreadPoolExecutor(READERS) as pool:
        counts = dict(zip(files, pool.map(_count, files)))
    shards = {}
    for file in files:
        shards.setdefault(_split(file), []).append(file)
    splits = {split: sum(counts[file] for file in of_split) for split, of_split in shards.items()}

    def read(split):
        pieces = []
        for name, first, end in parts(splits, split, f"tfrecord:{pattern}"):
            for file in shards[name]:
                if max(first, 0) < min(end, counts[file]):
                    pieces.append((file, max(first, 0), min(end, counts[file])))
                first, end = first - counts[file], end - counts[file]
        return _read(pieces, keys, len(class_names))

    return class_names, splits, read


def _read(pieces, keys, classes):
    """Several files at a time, in an order that never changes."""
    image, number = keys
    features = {image: tf.io.FixedLenFeature((), tf.string), number: tf.io.FixedLenFeature((), tf.int64)}

    def records(file, first, end):
        records = tf.data.TFRecordDataset(file).enumerate().skip(first).take(end - first)
        return records.map(lambda position, record: (numbered_in(file, position), record))

    def numbered_in(file, position):
        return tf.strings.join([file, numbered("", position)])

    def example(name, record):
        parsed = tf.io.parse_single_example(record, features)
        label = parsed[number]
        named = (0 <= label) & (label < classes)
        with tf.control_dependencies([tf.debugging.Assert(named, [name, "has the label", label, _others(classes)])]):
            return name, parsed[image], tf.identity(label)

    names, firsts, ends = zip(*pieces) if pieces else ((), (), ())
    starts = tf.data.Dataset.from_tensor_slices(
        (tf.constant(names, tf.string), tf.constant(firsts, tf.int64), tf.constant(ends, tf.int64))
    )
    return starts.interleave(
        records, cycle_length=READERS, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    ).map(example, tf.data.AUTOTUNE)


def _class_names(folder):
    for name in NAMES:
        file = tf.io.gfile.join(folder, name)
        if tf.io.gfile.exists(file):
            with tf.io.gfile.GFile(file) as lines:
                return tuple(line.strip() for line in lines if line.strip())
    raise ValueError(f"{folder} has no {NAMED}. Write one, with the name of a class in each line.")


def _checked(files, class_names):
    """Looks at the first images of some files; returns the keys of an image and its number."""
    keys = None
    for file in files:
        for features in _features(file, PEEKED // len(files)):
            keys = keys or next((pair for pair in KEYS if set(pair) <= set(features)), None)
            if keys is None or not set(keys) <= set(features):
                expected = " or ".join(" and ".join(pair) for pair in KEYS)
                raise ValueError(f"{file} has the features {sorted(features)}. Expected {expected}.")
            numbers = features[keys[1]].int64_list.value
            if len(numbers) != 1:
                raise ValueError(
                    f"{file} has {features[keys[1]].WhichOneof('kind')} with {len(numbers)} integers as "
                    f"{keys[1]!r}. Expected an int64_list with one, the number of the class."
                )
            if not 0 <= numbers[0] < len(class_names):
                raise ValueError(f"{file} has the label {numbers[0]}, {_others(len(class_names))}")
    if keys is None:
        raise ValueError(f"{', '.join(files)} have no images.")
    return keys


def _others(classes):
    return (
        f"but {NAMED} names {classes} classes, from 0 on. Add what is missing; where labels count from 1, a first line "
        'such as "background".'
    )


def _features(file, count):
    """Yields the features of the first images of a file by name."""
    try:
        for record in tf.data.TFRecordDataset(file).take(count).as_numpy_iterator():
            yield tf.train.Example.FromString(record).features.feature
    except (tf.errors.DataLossError, DecodeError) as error:
        raise ValueError(
            f"{file} cannot be read as TFRecords: it is damaged or compressed. Write it again, uncompressed ({error})."
        ) from error


def _split(file):
    name = re.sub(r"(-\d+-of-\d+)$", "", file.rpartition("/")[2])
    name = re.sub(r"[.]tfrecords?(-\d+-of-\d+)?$", "", name)
    return name.rpartition("-")[2]


def _count(file):
    """Records of a file: a record is its length (8 bytes), 4 bytes of check sum, itself, and 4 more."""
    # Python's own files read no more than they are asked to, where these are on this machine.
    with tf.io.gfile.GFile(file, "rb") if "://" in file else open(file, "rb", buffering=0) as records:
        count = position = 0
        while len(head := records.read(12)) == 12:
            position += 16 + struct.unpack("<Q", head[:8])[0]
            records.seek(position)
            count += 1
    return count
