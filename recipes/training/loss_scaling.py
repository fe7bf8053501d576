"""Dynamic loss scaling for mixed_float16: the rule of `keras.optimizers.LossScaleOptimizer`, with a minimum.

float16 has no numbers below 6e-8 and above 65,504. The loss is multiplied by a power of two, so that gradients of
activations do not become zeros, and the gradients of weights, which are float32, are divided by it again. (Micikevicius
et al., arXiv 1710.03740, section 3.2.)
"""

import keras
from keras import ops

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2_000
# Below 1 a scale would hide gradients that float16 can hold: what overflows then is a divergence.
SMALLEST_SCALE = 1.0
INTEGER = keras.backend.standardize_dtype("int")  # int64; int32 with JAX, as Keras's `iterations`


class LossScale:
    """The scale of an optimizer and its rule: halved after a step with non-finite gradients, doubled after
    `GROWTH_STEPS` finite ones in a row.

    Args:
        optimizer: Whose variables hold the state, so that checkpoints include it; all replicas change it alike.
    """

    def __init__(self, optimizer):
        same = {"shape": (), "aggregation": "only_first_replica"}
        self.scale = optimizer.add_variable(name="loss_scale", initializer=_initial_scale, dtype="float32", **same)
        self.finite_steps = optimizer.add_variable(name="finite_steps", dtype=INTEGER, **same)
        self.overflows = optimizer.add_variable(name="overflows", dtype=INTEGER, **same)

    def unscale(self, gradients: list) -> list:
        """The gradients of the loss itself; exact, since the scale is a power of two."""
        inverse = 1.0 / ops.convert_to_tensor(self.scale)
        return [gradient * ops.cast(inverse, gradient.dtype) for gradient in gradients]

    def update(self, finite):
        """Follows a step. Returns whether it overflowed, which a smaller scale fixes: an integer, 0 or 1.

        Args:
            finite: Whether the gradients of the step were finite, a scalar bool. At the smallest scale non-finite
                gradients are no overflow.
        """
        scale, count = ops.convert_to_tensor(self.scale), ops.convert_to_tensor(self.finite_steps) + 1
        overflowed = ops.cast(~finite & (scale > SMALLEST_SCALE), INTEGER)
        grows = ops.equal(count, GROWTH_STEPS)
        larger = ops.where(grows & ops.isfinite(2 * scale), 2 * scale, scale)
        self.scale.assign(ops.where(finite, larger, ops.maximum(scale / 2, SMALLEST_SCALE)))
        self.finite_steps.assign(ops.where(finite & ~grows, count, 0))
        self.overflows.assign_add(overflowed)
        return overflowed


def _initial_scale(shape, dtype):
    return ops.full(shape, INITIAL_SCALE, dtype=dtype)
