"""Optimizer steps that are the same on any number of replicas and skip non-finite gradients."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vit.models.layer_decay import NO_WEIGHT_DECAY
from keras_vit.recipes.keras_internals import CustomUpdate, check_update_step

MASK = "mask"  # the [mask] embedding of masked patches


class ReplicaInvariant(CustomUpdate):
    """Sums gradients over replicas, checks that they are finite, clips them, and only then updates.

    For Keras 3 optimizers, which on TensorFlow clip each replica's own gradients before the sum. The paper's code clips
    the reduced gradient (google-research/vision_transformer, train.py). Keras's ema_overwrite_frequency and
    gradient_accumulation_steps have no effect or fail. One step, with rate = schedule(step) times the variable's
    `rate_factors`:

    - A step with non-finite gradients, or a non-finite norm, changes no weight, momentum or average. It counts as an
      iteration, so that data and schedule stay aligned with the step, in `nonfinite_steps` and, until the next finite
      step, in `consecutive_nonfinite_steps`.
    - p <- p - rate * update - rate * weight_decay * p, the decay of the paper's flax.optim.Adam, for all variables but
      vectors, `NO_WEIGHT_DECAY` and [mask] (other names: `exclude_from_weight_decay`).
    - With `loss_scaling`, for mixed_float16, gradients are divided by the loss scale after the sum. A step that
      overflows is skipped and halves the scale; it counts in `overflows` instead of the two counters above, see
      `LossScale`.
    - average <- p after the first finite step, then ema_momentum * average + (1 - ema_momentum) * p. Training leaves
      the averages in the optimizer, see `ema`.

    Args:
        rate_factors: Factors of the learning rate, one per variable in the order of `build`; None for 1.
        loss_scaling: Scale the loss. Compile the model with auto_scale_loss=False: Keras's scaling would be added.

    Attributes:
        mesh: With Keras on JAX, a mesh of one axis, set before `build`: each of its devices holds a part of each moment
            and average, see `sharding`, computes that part of a step, and gets the others (ZeRO-1, arXiv 1910.02054).
            None for copies on all devices.
    """

    mesh: Any = None

    def __init__(self, *args, rate_factors: list[float] | None = None, loss_scaling: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.set_steps(rate_factors, loss_scaling)

    def set_steps(self, rate_factors: list[float] | None, loss_scaling: bool):
        """Sets what `keras.optimizers.Optimizer` does not have; before `build`."""
        self.rate_factors = None if rate_factors is None else [float(factor) for factor in rate_factors]
        self.loss_scaling = loss_scaling
        self.loss_scale: LossScale | None = None
        self.exclude_from_weight_decay(var_names=[*NO_WEIGHT_DECAY, MASK])

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.num_keras_variables = len(self.variables)
        self.decayed = [self.is_decayed(variable) for variable in variables]
        counter = {"shape": (), "dtype": INTEGER, "aggregation": "only_first_replica"}
        self.nonfinite_steps = self.add_variable(name="nonfinite_steps", **counter)
        self.consecutive_nonfinite_steps = self.add_variable(name="consecutive_nonfinite_steps", **counter)
        if self.loss_scaling:
            self.loss_scale = LossScale(self)
        if self.use_ema:  # also of a variable that never gets a gradient
            with tf.init_scope():  # has no effect with JAX
                for average, variable in zip(self.averages, variables):
                    average.assign(ops.copy(variable))  # JAX would share the array, and cannot donate it twice

    def sharding(self, shape):
        """The `jax.sharding.NamedSharding` of an array: it is split along its first axis that the devices divide.

        None for a copy on each device: for vectors, arrays without such an axis, and without a mesh.
        """
        axes = [axis for axis, size in enumerate(shape) if self.mesh and size % self.mesh.size == 0]
        if len(shape) < 2 or not axes:
            return None
        from jax.sharding import NamedSharding, PartitionSpec

        return NamedSharding(self.mesh, PartitionSpec(*[None] * axes[0], *self.mesh.axis_names))

    def add_variable(self, shape, *args, layout=None, **options):
        return super().add_variable(shape, *args, layout=self.sharding(shape) or layout, **options)

    def split(self, array):
        """An array of a step, of which each device computes its part."""
        sharding = self.sharding(array.shape)
        return array if sharding is None else keras.distribution.distribute_tensor(array, sharding)

    def whole(self, array):
        """An array of a step, all of it on each device."""
        if self.mesh is None:
            return array
        from jax.sharding import NamedSharding, PartitionSpec

        return keras.distribution.distribute_tensor(array, NamedSharding(self.mesh, PartitionSpec()))

    def scale_loss(self, loss):
        """The loss to differentiate."""
        if not self.loss_scaling:
            return super().scale_loss(loss)
        return loss * ops.cast(self.loss_scale.scale if self.loss_scale else INITIAL_SCALE, loss.dtype)

    def replica_update(self, gradients, variables, learning_rate):
        gradients = self.summed(gradients)
        if self.mesh:  # from whole sums XLA makes reduce-scatters; else it splits the backward pass, in more memory
            gradients = [self.split(self.whole(gradient)) for gradient in gradients]
        before = ops.cast(self.nonfinite_steps, INTEGER)  # steps that were skipped
        if self.loss_scale:
            gradients = self.loss_scale.unscale(gradients)
            before += ops.cast(self.loss_scale.overflows, INTEGER)
        finite = self.are_finite(gradients)
        gradients = self.clip(gradients)
        first = ops.equal(ops.cast(self.iterations, INTEGER), before)
        self.update_each(self._update_if, variables, gradients, learning_rate, finite, first)
        skipped = 1 - ops.cast(finite, INTEGER)
        if self.loss_scale:
            skipped -= self.loss_scale.update(finite)
        self.nonfinite_steps.assign_add(skipped)
        self.consecutive_nonfinite_steps.assign((self.consecutive_nonfinite_steps + 1) * skipped)

    def _update_if(self, variable, gradient, learning_rate, finite, first):
        """One variable's update on one device; `assign`, `assign_add` and `assign_sub` read `_finite`."""
        self._finite = finite
        index = self.index_of(variable)
        rate = learning_rate * self.rate_factors[index] if self.rate_factors else learning_rate
        if self.decayed[index]:
            self.decay_step(variable, rate)
        self.update_step(gradient, variable, rate)
        if self.use_ema:
            average = self.averages[index]
            fraction = ops.where(first, 1.0, 1.0 - self.ema_momentum)
            self.assign_add(average, (variable - average) * ops.cast(fraction, variable.dtype))
        self._finite = None

    def decay_step(self, variable, rate):
        """The weight decay of one variable."""
        self.assign_sub(variable, variable * ops.cast(self.weight_decay * rate, variable.dtype))

    def assign(self, variable, value):
        super().assign(variable, ops.where(self._finite, value, ops.convert_to_tensor(variable)))

    def assign_add(self, variable, value):
        super().assign_add(variable, ops.where(self._finite, value, ops.zeros((), value.dtype)))

    def assign_sub(self, variable, value):
        value = ops.where(self._finite, value, ops.zeros((), value.dtype))
        super().assign_sub(variable, self.whole(value))  # a gathered weight would be copied, before and after the step

    def get_config(self):
        factors = self.rate_factors
        own = {"rate_factors": None if factors is None else list(factors), "loss_scaling": self.loss_scaling}
        return {**super().get_config(), **own}


def replica_invariant(
    optimizer: keras.optimizers.Optimizer, rate_factors: list[float] | None, loss_scaling: bool
) -> ReplicaInvariant:
    """Gives any Keras optimizer, which is not built yet, the step of `ReplicaInvariant`; returns it.

    Its `update_step` remains. Files of models hold it as an optimizer of its own class, with the state of that.

    Raises:
        ValueError: Its step is not in `update_step` alone.
    """
    kind = type(optimizer)
    if not issubclass(kind, ReplicaInvariant):
        check_update_step(kind)

        def get_config(self):
            config = super(steps, self).get_config()
            return {name: value for name, value in config.items() if name not in ("rate_factors", "loss_scaling")}

        def save_own_variables(self, store):
            for number, variable in enumerate(self.variables[: self.num_keras_variables]):
                store[str(number)] = keras.ops.convert_to_numpy(variable)

        names = {"__module__": kind.__module__, "get_config": get_config, "save_own_variables": save_own_variables}
        steps = type(keras.saving.get_registered_name(kind), (ReplicaInvariant, kind), names)
        optimizer.__class__ = steps
    optimizer.set_steps(rate_factors, loss_scaling)
    return optimizer


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
