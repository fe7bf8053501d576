"""Gradient accumulation within a step with Keras on JAX. B batch of all devices, n devices, S parts, b = B / S."""

from functools import partial

import keras
from keras import tree

from keras_vit.recipes.training.keras_internals import JaxStep


def jax_train_step(model, parts: int, devices: int, state, data):
    """`keras.Model.train_step` with a loop around all but the optimizer's step, see `accumulate_gradients`."""
    import jax

    data = tree.map_structure(partial(_split, parts=parts, devices=devices), data)
    step = JaxStep(model, state)

    def add(carry, part):
        sums, changing = carry
        batch = keras.utils.unpack_x_y_sample_weight(part)
        gradients, changing = step.gradients(changing, *batch)
        return ([total + new for total, new in zip(sums, gradients)], changing), None

    zeros = [jax.numpy.zeros_like(weight) for weight in step.weights]
    (sums, changing), _ = jax.lax.scan(add, (zeros, step.changing), data)
    return step.applied([total / parts for total in sums], changing)


def _split(values, parts, devices):
    """(B, ...) to (S, b, ...); each part has images of every device, so that none of them moves."""
    batch, *rest = values.shape
    if batch % (parts * devices):
        raise ValueError(
            f"A batch must be divisible into {parts} equal parts on {devices} devices. Received: {batch} images. "
            "Change data.batch_size or optimizer.accumulation_steps."
        )
    values = values.reshape(devices, parts, batch // parts // devices, *rest)
    return values.swapaxes(0, 1).reshape(parts, batch // parts, *rest)  # (S, b, ...)
