"""Gradient accumulation: a batch in parts, one after the other in memory. B a replica's batch, S parts, b = B / S."""

from functools import partial

import keras
import tensorflow as tf
from keras import tree


def accumulate_gradients(model, parts: int):
    """Makes a model's `fit` compute each update from `parts` equal parts of every replica's batch.

    Only one part's activations are in memory at a time. The update is that of the whole batch, under every strategy,
    where losses are means over images, as Keras's are by default: gradients are summed in a loop, divided by `parts`,
    reduced over replicas once and applied once. Metrics see every image; dropout draws anew in every part.
    (`gradient_accumulation_steps` of Keras keeps gradients from batch to batch and fails under a strategy.)

    The model itself stays as it is: nothing but its `train_step` changes, before or after `compile`.

    Args:
        model: Any Keras model whose weights exist; inputs, labels and weights may be nested.
        parts: S, at least 1.

    Raises:
        ValueError: `parts` is below 1, or the model is not built; and from `fit`, before the first step, if a replica's
            batch is no multiple (InvalidArgumentError, where its size is not known before).
    """
    if parts < 1:
        raise ValueError(f"The number of parts of a batch must be at least 1. Received: {parts}")
    if not model.built:
        raise ValueError(f"{model.name} has no weights yet. Build it, or call it on a batch, before.")
    if parts > 1:
        model.train_step = partial(_train_step, model, parts)


def check_batch_size(batch_size: int, replicas: int, parts: int):
    """Raises ValueError if a global batch cannot be cut into equal parts on every replica."""
    if batch_size % (replicas * parts):
        lower = batch_size // (replicas * parts) * replicas * parts
        raise ValueError(
            f"A batch of {batch_size} does not go into {replicas} replicas times {parts} accumulation steps. Take "
            f"{f'{lower} or ' if lower else ''}{lower + replicas * parts}, or other accumulation_steps."
        )


def _train_step(model, parts, data):
    """As `keras.Model.train_step`, with a loop around all but the update."""
    data = tree.map_structure(partial(_cut, parts=parts), data)
    weights = model.trainable_weights
    connected = [True] * len(weights)

    def body(number, sums):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tree.map_structure(lambda part: part[number], data))
        gradients = _gradients(model, x, y, sample_weight)
        for i, gradient in enumerate(gradients):
            connected[i] = gradient is not None
        # Of a table, a gradient may be a sum of slices: the conversion makes it dense.
        return number + 1, [
            one if new is None else one + tf.convert_to_tensor(new) for one, new in zip(sums, gradients)
        ]

    zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
    loop = {"parallel_iterations": 1, "maximum_iterations": parts}
    _, sums = tf.while_loop(lambda number, _: number < parts, body, (tf.constant(0), zeros), **loop)
    gradients = [one / parts if found else None for one, found in zip(sums, connected)]
    model.optimizer.apply_gradients(zip(gradients, weights))
    return model.get_metrics_result()


def _gradients(model, x, y, sample_weight):
    """Gradients of a part's mean loss; counts it in the metrics."""
    with tf.GradientTape() as tape:
        y_pred = model(x, training=True)
        loss = model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync  # Keras divides the loss by it
        model._loss_tracker.update_state(loss * replicas, sample_weight=tf.shape(tree.flatten(x)[0])[0])
        loss = model.optimizer.scale_loss(loss)
    model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    return tape.gradient(loss, model.trainable_weights)


def _cut(values, parts):
    """(B, ...) to (S, b, ...)."""
    batch, *rest = values.shape
    message = f"A replica's batch cannot be cut into {parts} equal parts: it has"
    if batch is not None and batch % parts:
        raise ValueError(f"{message} {batch} images. Change either.")
    if batch is None:  # as several workers' are
        size = tf.shape(values)[0]
        check = tf.debugging.Assert(size % parts == 0, [message, size])
        with tf.control_dependencies([check] if check is not None else []):
            values = tf.identity(values)
    return tf.reshape(values, (parts, -1 if batch is None else batch // parts, *rest))  # (S, b, ...)
