"""What makes an optimizer compute the same on any number of replicas."""

import tensorflow as tf
from keras import ops

from keras_vit.models.layer_decay import NO_WEIGHT_DECAY

MASK = "mask"  # the embedding of masked patches


class ReplicaInvariant:
    """Reduces gradients over replicas, checks them, clips them, and only then changes anything.

    For optimizers of Keras 3, whose TensorFlow side clips each replica's own gradients before the sum. The paper's code
    clips the reduced gradient (google-research/vision_transformer, train.py). One update, with rate = schedule(step)
    times the variable's `rate_factors`:

    - a step whose gradients are not finite, or whose norm is not, changes no weight, no momentum and no average. It
      counts as an iteration, so that data and schedule stay with the step, and in `nonfinite_steps` and, until the next
      good step, in `consecutive_nonfinite_steps`;
    - p <- p - rate * update - rate * weight_decay * p, the decay of the paper's flax.optim.Adam, for all variables but
      `NO_WEIGHT_DECAY` and [mask] (other names: `exclude_from_weight_decay`);
    - average <- p after the first good step, then ema_momentum * average + (1 - ema_momentum) * p. Training leaves the
      averages in the optimizer, see `averaging`.

    Args:
        rate_factors: Factors on the learning rate, one for each variable in the order of `build`; None for 1.
    """

    def __init__(self, *args, rate_factors=None, **kwargs):
        super().__init__(*args, **kwargs)
        if self.ema_overwrite_frequency or self.gradient_accumulation_steps:
            raise ValueError(
                "ema_overwrite_frequency and gradient_accumulation_steps do not work with these optimizers. Use "
                "keras_vit.recipes.training.ema and keras_vit.recipes.training.accumulation."
            )
        self.rate_factors = None if rate_factors is None else [float(factor) for factor in rate_factors]
        self.exclude_from_weight_decay(var_names=[*NO_WEIGHT_DECAY, MASK])

    def build(self, variables):
        if self.built:
            return
        if self.rate_factors and len(self.rate_factors) != len(variables):
            raise ValueError(
                f"{len(self.rate_factors)} factors on the learning rate for {len(variables)} trainable variables. Make "
                "the optimizer for this model, after freezing what does not train."
            )
        super().build(variables)
        self.decayed = [bool(self.weight_decay) and self._use_weight_decay(variable) for variable in variables]
        counter = {"shape": (), "dtype": "int64", "aggregation": "only_first_replica"}
        self.nonfinite_steps = self.add_variable(name="nonfinite_steps", **counter)
        self.consecutive_nonfinite_steps = self.add_variable(name="consecutive_nonfinite_steps", **counter)
        if self.use_ema:  # also of a variable that never gets a gradient
            with tf.init_scope():
                for average, variable in zip(self._model_variables_moving_average, variables):
                    average.assign(variable)

    # These names are private to Keras, so the tests compare what comes out: with Keras, and N replicas with one.

    def _clip_gradients(self, grads):
        return grads

    def _apply_weight_decay(self, variables):
        pass

    def _update_model_variables_moving_average(self, trainable_variables):
        pass

    def finalize_variable_values(self, var_list):
        """Leaves the weights as they are: a run may go on. Keras would put the averages in their place."""

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        variables = [getattr(variable, "value", variable) for variable in trainable_variables]
        grads = [tf.convert_to_tensor(grad) for grad in grads]  # of a table, they may be a sum of slices
        grads = [grad for grad, _ in self._all_reduce_sum_gradients(list(zip(grads, variables)))]
        good = tf.math.is_finite(tf.linalg.global_norm(grads))
        grads = super()._clip_gradients(grads)
        first = tf.equal(tf.cast(self.iterations, "int64"), tf.cast(self.nonfinite_steps, "int64"))

        def update(strategy, grads, *scalars):
            for variable, grad in zip(variables, grads):
                strategy.extended.update(variable, self._update_if, args=(grad, *scalars), group=False)

        tf.__internal__.distribute.interim.maybe_merge_call(
            update, self._distribution_strategy, grads, learning_rate, good, first
        )
        bad = 1 - tf.cast(good, "int64")
        self.nonfinite_steps.assign_add(bad)
        self.consecutive_nonfinite_steps.assign((self.consecutive_nonfinite_steps + 1) * bad)

    def _update_if(self, variable, grad, learning_rate, good, first):
        """One variable's update on one device; `assign` and its like below read `_good`."""
        self._good = good
        index = self._get_variable_index(variable)
        rate = learning_rate * self.rate_factors[index] if self.rate_factors else learning_rate
        if self.decayed[index]:
            self.assign_sub(variable, variable * ops.cast(self.weight_decay * rate, variable.dtype))
        self.update_step(grad, variable, rate)
        if self.use_ema:
            average = self._model_variables_moving_average[index]
            share = ops.where(first, 1.0, 1.0 - self.ema_momentum)
            self.assign_add(average, (variable - average) * ops.cast(share, variable.dtype))
        self._good = None

    def assign(self, variable, value):
        super().assign(variable, tf.where(self._good, value, tf.convert_to_tensor(variable)))

    def assign_add(self, variable, value):
        super().assign_add(variable, tf.where(self._good, value, tf.zeros((), value.dtype)))

    def assign_sub(self, variable, value):
        super().assign_sub(variable, tf.where(self._good, value, tf.zeros((), value.dtype)))

    def get_config(self):
        factors = self.rate_factors
        return {**super().get_config(), "rate_factors": None if factors is None else list(factors)}
