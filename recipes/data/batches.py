"""Groups examples to batches, prepares their images, and copes with those that cannot be decoded. B batch.

An image that fails leaves its batch by `ignore_errors` of a data set that holds this one batch, so no other batch
knows of it: numbers do not shift, and nothing is done for images that are fine. All of it, messages too, is
TensorFlow operations: a Python function would not run on the workers of a tf.data service, and would hold one lock for
all threads.
"""

import sys

import tensorflow as tf

# More than a machine has cores: calls wait in line for a thread, and take no memory meanwhile.
PARALLEL_IMAGES = 64
PARALLEL_BATCHES = 2


def prepared_batches(examples, batch_size: int, prepare, part: int = 0, part_size: int | None = None):
    """Batches of the images that can be prepared.

    Args:
        examples: Of (number, (name, image, label)).
        batch_size: Examples a batch; the last one may have fewer.
        prepare: From (number, image) to a float image of static shape; an error of it makes the image corrupt.
        part, part_size: Number and size of the part of each batch that is wanted; all of it without.

    Returns:
        Batches ((n,) names of all images, (k,) places of those that are fine, (k, H, W, 3) images, (k, ...) labels).
    """
    part_size = part_size or batch_size

    def batch(numbers, example):
        names, images, labels = example
        members = tf.data.Dataset.zip((numbers, images, labels)).skip(part * part_size).take(part_size)
        good = members.enumerate().map(
            lambda place, member: (place, prepare(member[0], member[1]), member[2]),
            PARALLEL_IMAGES,
            deterministic=True,
        )
        names = names.skip(part * part_size)
        return tf.data.Dataset.zip((_one(names, part_size), _one(good.ignore_errors(log_warning=True), part_size)))

    batches = examples.window(batch_size).interleave(
        batch, cycle_length=PARALLEL_BATCHES, num_parallel_calls=PARALLEL_BATCHES, deterministic=True
    )
    return batches.map(lambda names, good: (names, *good))


def corrupt_replaced(batches, size: int, total: int, max_corrupt: float):
    """Full batches (images, labels): others of the same batch come twice, in the places of corrupt images.

    Args:
        batches: From `prepared_batches`.
        size: Images of a full batch.
        total: Images of the split.
        max_corrupt: Largest share of corrupt images, of the split or of all that came so far; more are an error.
    """

    def full(kept, *values):
        again = tf.range(size) % tf.maximum(kept, 1)
        return tuple(tf.gather(value, again) for value in values)

    def batch(names, places, images, labels):
        with tf.control_dependencies([_some(places)]):
            return _if_short(size, full, places, images, labels)

    return _counted(batches, total, max_corrupt).map(batch, tf.data.AUTOTUNE)


def corrupt_weightless(batches, size: int, batch_size: int, total: int, max_corrupt: float):
    """Full batches (images, labels, (size,) float32 weights): filled up with zeros of weight 0. See above.

    All others have the same weight, so much above 1 that Keras, which divides the weighted losses of a batch by its
    size, gives the mean loss of the images; a loss that is too low by the share of corrupt ones, if there are any,
    since they are not known beforehand. (Weighted metrics divide by the weights: they are right in any case.)
    """
    weight = -(-total // batch_size) * batch_size / total

    def full(kept, *values):
        return tuple(tf.pad(value, [[0, size - kept]] + [[0, 0]] * (len(value.shape) - 1)) for value in values)

    def batch(names, places, images, labels):
        weights = weight * tf.sequence_mask(tf.shape(places)[0], size, tf.float32)
        return *_if_short(size, full, places, images, labels), weights

    return _counted(batches, total, max_corrupt).map(batch, tf.data.AUTOTUNE)


def _one(examples, size):
    """One batch of up to `size` examples, of none if there are none."""
    batches = examples.batch(size)
    empty = tf.nest.map_structure(lambda spec: tf.zeros([0, *spec.shape[1:]], spec.dtype), batches.element_spec)
    return batches.concatenate(tf.data.Dataset.from_tensors(empty)).take(1)


def _if_short(size, full, places, *values):
    kept = tf.shape(places)[0]
    values = tf.cond(kept < size, lambda: full(kept, *values), lambda: values)
    return tuple(tf.ensure_shape(value, (size, *value.shape[1:])) for value in values)


def _some(places):
    return tf.debugging.Assert(tf.size(places) > 0, ["None of the images of a batch can be decoded."])


def _counted(batches, total, max_corrupt):
    """Passes batches on; names corrupt images on the standard error stream, and stops if there are too many."""

    def tell(names, places, seen, lost):
        good = tf.scatter_nd(places[:, None], tf.ones_like(places), tf.shape(names, tf.int64))
        told = tf.print(
            "Left out, cannot be decoded:", tf.boolean_mask(names, good == 0), "-", lost, "of", seen, "images so far",
            output_stream=sys.stderr, summarize=-1,
        )  # fmt: skip
        few = tf.cast(lost, tf.float64) <= max_corrupt * tf.cast(tf.maximum(seen, total), tf.float64)
        message = f"More than {max_corrupt:.2%} of the images cannot be decoded (max_corrupt={max_corrupt}). So far:"
        with tf.control_dependencies([told]):
            stop = tf.debugging.Assert(few, [message, lost, "of", seen])
        with tf.control_dependencies([stop]):
            return tf.identity(lost)

    def count(state, batch):
        names, places = batch[:2]
        seen, lost = (
            state[0] + tf.size(names, tf.int64),
            state[1] + tf.size(names, tf.int64) - tf.size(places, tf.int64),
        )
        lost = tf.cond(lost > state[1], lambda: tell(names, places, seen, lost), lambda: lost)
        return (seen, lost), batch

    zero = tf.zeros((), tf.int64)
    return batches.scan((zero, zero), count)
