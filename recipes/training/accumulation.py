"""Gradient accumulation within a step. B batch of a replica, S parts, b = B / S."""

from functools import partial

import keras
import tensorflow as tf
from keras import tree

from keras_vit.recipes.keras_internals import JaxStep, update_loss_metric
from keras_vit.recipes.recipe.errors import RecipeError


def accumulate_gradients(model, parts: int, replicas: int = 1):
    """Makes `fit` compute each step from `parts` equal parts of every replica's batch, one in memory at a time.

    The step equals that of the whole batch, under every strategy, if losses are means over images, Keras's default:
    gradients are summed in a loop, divided by `parts`, all-reduced once and applied once. Metrics include every image;
    dropout is drawn separately for each part. (Keras's `gradient_accumulation_steps` accumulates over batches and
    fails under a strategy.)

    Only the model's `train_step` is replaced; call this before or after `compile`.
    """
    if parts > 1:
        if keras.backend.backend() == "jax":
            model.train_step = partial(jax_train_step, model, parts, replicas)
        else:
            model.train_step = partial(_train_step, model, parts)


def check_batch_size(batch_size: int, replicas: int, parts: int):
    """Raises RecipeError if a global batch is not divisible into equal parts on every replica."""
    divisor = replicas * parts
    if batch_size % divisor:
        lower = batch_size // divisor * divisor
        raise RecipeError(
            f"A batch must be divisible by {replicas} replicas times {parts} accumulation steps.",
            {"data.batch_size": batch_size, "optimizer.accumulation_steps": parts},
            [{"data.batch_size": size} for size in (lower, lower + divisor) if size],
        )


def _train_step(model, parts, data):
    """`keras.Model.train_step` with a loop around all but `apply_gradients`."""
    data = _without_none(data)
    data = tree.map_structure(lambda x: tf.reshape(x, (parts, -1, *x.shape[1:])), data)  # (B, ...) to (S, b, ...)
    weights = model.trainable_weights
    connected = [True] * len(weights)

    def body(index, sums):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tree.map_structure(lambda part: part[index], data))
        gradients = _gradients(model, x, y, sample_weight)
        for i, gradient in enumerate(gradients):
            connected[i] = gradient is not None
        # The gradient of a table may be IndexedSlices; the conversion makes it dense.
        return index + 1, [
            total if new is None else total + tf.convert_to_tensor(new) for total, new in zip(sums, gradients)
        ]

    zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
    loop = {"parallel_iterations": 1, "maximum_iterations": parts}
    _, sums = tf.while_loop(lambda index, _: index < parts, body, (tf.constant(0), zeros), **loop)
    gradients = [total / parts if is_connected else None for total, is_connected in zip(sums, connected)]
    model.optimizer.apply_gradients(zip(gradients, weights))
    return model.get_metrics_result()


def _without_none(data):
    """The parts of a batch that are there: `train_on_batch` passes None for those that are not."""
    return keras.utils.pack_x_y_sample_weight(*keras.utils.unpack_x_y_sample_weight(data))


def _gradients(model, x, y, sample_weight):
    """Gradients of the mean loss of a part; updates the metrics."""
    with tf.GradientTape() as tape:
        y_pred = model(x, training=True)
        loss = model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync  # Keras divides the loss by it
        update_loss_metric(model, loss * replicas, tf.shape(tree.flatten(x)[0])[0])
        loss = model.optimizer.scale_loss(loss)
    model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    return tape.gradient(loss, model.trainable_weights)


def jax_train_step(model, parts: int, devices: int, state, data):
    """`keras.Model.train_step` with a loop around all but the optimizer's step, see `accumulate_gradients`."""
    import jax

    data = tree.map_structure(partial(_split_on_devices, parts=parts, devices=devices), _without_none(data))
    step = JaxStep(model, state)

    def add(carry, part):
        sums, changing = carry
        batch = keras.utils.unpack_x_y_sample_weight(part)
        gradients, changing = step.gradients(changing, *batch)
        return ([total + new for total, new in zip(sums, gradients)], changing), None

    zeros = [jax.numpy.zeros_like(weight) for weight in step.weights]
    (sums, changing), _ = jax.lax.scan(add, (zeros, step.changing), data)
    return step.applied([total / parts for total in sums], changing)


def _split_on_devices(values, parts, devices):
    """(B, ...) to (S, b, ...); each part has images of every device, so that none of them moves."""
    batch, *rest = values.shape
    values = values.reshape(devices, parts, batch // parts // devices, *rest)
    return values.swapaxes(0, 1).reshape(parts, batch // parts, *rest)  # (S, b, ...)
