"""Batches of the images that can be decoded: corrupt ones are named, counted, and replaced or weighted 0. B batch.

A corrupt image is dropped from its batch by `ignore_errors` of a dataset that holds only this batch, so that no other
batch is affected: indices do not shift, and valid images incur no extra cost. All of it is TensorFlow operations: the
lock of a Python function would block all threads. Only the rare corrupt images are reported by one, unless a tf.data
service reads them: its workers do not run Python functions.
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import tensorflow as tf

from keras_vit.messages import first_names
from keras_vit.recipes.recipe import Data

# More than a machine has cores: calls wait for a thread and take no memory meanwhile.
PARALLEL_IMAGES = 64
PARALLEL_BATCHES = 2

_skipped: dict[tuple[str, str], None] = {}  # dataset and image, in the order of their first reads
_named: set[tuple[str, str]] = set()


def batch_valid_images(examples, batch_size: int, prepare, part: int = 0, part_size: int | None = None):
    """Batches the images that can be prepared.

    Args:
        prepare: From (index, image) to a float image of static shape; if it raises an error, the image is corrupt.
        part, part_size: Index and size of the part of each batch to prepare; by default the whole batch.

    Returns:
        Batches ((n,) names of all images, (k,) positions of the valid ones, (k, H, W, 3) images, (k, ...) labels).
    """
    part_size = part_size or batch_size

    def batch(indices, example):
        names, images, labels = example
        members = tf.data.Dataset.zip((indices, images, labels)).skip(part * part_size).take(part_size)
        valid = members.enumerate().map(
            lambda position, member: (position, prepare(member[0], member[1]), member[2]),
            PARALLEL_IMAGES,
            deterministic=True,
        )
        names = names.skip(part * part_size)
        valid = valid.ignore_errors(log_warning=True)
        return tf.data.Dataset.zip((_single_batch(names, part_size), _single_batch(valid, part_size)))

    batches = examples.window(batch_size).interleave(
        batch, cycle_length=PARALLEL_BATCHES, num_parallel_calls=PARALLEL_BATCHES, deterministic=True
    )
    return batches.map(lambda names, valid: (names, *valid))


def replace_corrupt(batches, size: int, total: int, data: Data, fallback, num_hosts: int = 1):
    """Full batches (images, labels): other images of the same batch take the places of corrupt ones.

    Args:
        fallback: Dataset of (image, label), in which reading a corrupt image raises an error; the first other image
            makes up a batch that has corrupt images only, whatever was read before.
        data: Its `max_corrupt` is the largest allowed fraction of corrupt images, of the split or of all read so far,
            whichever is larger; beyond it an error is raised. Of several machines, each counts its own part.
    """

    def repeat(num_valid, *values):
        indices = tf.range(size) % tf.maximum(num_valid, 1)
        return tuple(tf.gather(value, indices) for value in values)

    first = _single_batch(fallback.ignore_errors(), 1)

    def fill(names, positions, images, labels):
        images, labels = tf.cond(tf.size(positions) > 0, lambda: (images, labels), first.get_single_element)
        check = tf.debugging.Assert(tf.shape(images)[0] > 0, ["No image can be decoded."])
        with tf.control_dependencies([check]):
            return _fill_if_short(size, repeat, images, labels)

    return _count_corrupt(batches, total, data, num_hosts, bool(data.service)).map(fill, tf.data.AUTOTUNE)


def zero_weight_corrupt(batches, size: int, total: int, data: Data, num_hosts: int = 1):
    """Full batches (images, labels, (size,) float32 weights), padded with zeros of weight 0; see `replace_corrupt`.

    All other images have the same weight, slightly above 1: Keras divides the weighted losses of a batch by its size,
    so the mean is that of the images. Corrupt images are not known beforehand: with some, the mean is too low by
    their fraction. (Weighted metrics divide by the weights, so they are always correct.)
    """
    weight = -(-total // data.batch_size) * data.batch_size / total

    def pad(num_valid, *values):
        return tuple(tf.pad(value, [[0, size - num_valid]] + [[0, 0]] * (len(value.shape) - 1)) for value in values)

    def fill(names, positions, images, labels):
        weights = weight * tf.sequence_mask(tf.shape(positions)[0], size, tf.float32)
        return *_fill_if_short(size, pad, images, labels), weights

    return _count_corrupt(batches, total, data, num_hosts, on_service=False).map(fill, tf.data.AUTOTUNE)


def _single_batch(examples, size):
    """One batch of up to `size` examples; an empty one if there are none."""
    batches = examples.batch(size)
    empty = tf.nest.map_structure(lambda spec: tf.zeros([0, *spec.shape[1:]], spec.dtype), batches.element_spec)
    return batches.concatenate(tf.data.Dataset.from_tensors(empty)).take(1)


def _fill_if_short(size, fill, *values):
    num_valid = tf.shape(values[0])[0]
    values = tf.cond(num_valid < size, lambda: fill(num_valid, *values), lambda: values)
    return tuple(tf.ensure_shape(value, (size, *value.shape[1:])) for value in values)


def _count_corrupt(batches, total, data, num_hosts, on_service):
    """Returns the batches; prints the names of corrupt images to stderr, and raises an error if there are too many."""
    max_corrupt, named_by_python = data.max_corrupt, partial(count_skipped, data.dataset)

    def name(images):
        if on_service:  # in every epoch, on the worker's stderr
            return tf.print("Skipping undecodable images:", images, output_stream=sys.stderr, summarize=-1)
        return tf.numpy_function(named_by_python, [images], [])

    def report(names, positions, num_read, num_corrupt):
        valid = tf.scatter_nd(positions[:, None], tf.ones_like(positions), tf.shape(names, tf.int64))
        named = name(tf.boolean_mask(names, valid == 0))
        allowed = max_corrupt * tf.maximum(tf.cast(num_read, tf.float64), total / num_hosts)
        if num_hosts > 1:  # one image of a small part is not too many
            allowed = tf.math.ceil(allowed)
        message = f"More than {max_corrupt:.2%} of the images cannot be decoded. So far:"
        with tf.control_dependencies([named]):
            check = tf.debugging.Assert(
                tf.cast(num_corrupt, tf.float64) <= allowed, [message, num_corrupt, "of", num_read]
            )
        with tf.control_dependencies([check]):
            return tf.identity(num_corrupt)

    def count(state, batch):
        names, positions = batch[:2]
        num_read = state[0] + tf.size(names, tf.int64)
        num_corrupt = state[1] + tf.size(names, tf.int64) - tf.size(positions, tf.int64)
        num_corrupt = tf.cond(
            num_corrupt > state[1], lambda: report(names, positions, num_read, num_corrupt), lambda: num_corrupt
        )
        return (num_read, num_corrupt), batch

    zero = tf.zeros((), tf.int64)
    return batches.scan((zero, zero), count)


def count_skipped(dataset: str, names: Iterable[str | bytes]):
    """Counts images, and prints those to standard error that this process has not named yet."""
    images = [(dataset, name.decode("utf-8", "replace") if isinstance(name, bytes) else name) for name in names]
    _skipped.update(dict.fromkeys(images))
    if new := [image for image in dict.fromkeys(images) if image not in _named]:
        _named.update(new)
        with suppress(OSError):  # a closed standard error is no reason to end a training
            print(f"Skipping undecodable images: {', '.join(name for _, name in new)}", file=sys.stderr, flush=True)


def mark_named(dataset: str, names: Iterable[str]):
    """Notes that the user has been given these names in another message."""
    _named.update((dataset, name) for name in names)


def skipped_images(dataset: str) -> list[str]:
    """Names of the images of a dataset that were skipped since the last `skipped_summary`."""
    return [name for source, name in _skipped if source == dataset]


def skipped_summary() -> str:
    """How many images were skipped since the last call, and the first names; "" if none was."""
    names = [name for _, name in _skipped]
    _skipped.clear()
    return f"Skipped undecodable images: {len(names):,} ({first_names(names)})" if names else ""
