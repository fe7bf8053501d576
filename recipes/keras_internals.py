"""Private and undocumented parts of Keras and TensorFlow that recipes use; no other file of recipes/ does.

Tested with Keras 3.15.1 and TensorFlow 2.20.0. When a newer version moves one of them,
tests/recipes/test_keras_internals.py names it.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import keras
import tensorflow as tf
from keras import ops
from tensorflow.python.eager import context


@contextmanager
def build_from_spec(model, batch_spec: Callable):
    """In this context, `fit` and `evaluate` do not draw a batch to learn shapes, as Keras does under a strategy.

    Each such batch would start the data again: the shuffle buffer is refilled, and a resumed run skips its first steps
    once more.
    """
    with_jax = keras.backend.backend() == "jax"
    if not with_jax and model._distribute_strategy is None:
        yield
        return
    with nullcontext() if with_jax else model.distribute_strategy.scope():
        model._symbolic_build(data_batch=in_32_bits(batch_spec()) if with_jax else batch_spec())
    name = "_symbolic_build" if with_jax else "_maybe_symbolic_build"
    setattr(model, name, lambda **_: None)
    try:
        yield
    finally:
        delattr(model, name)


def in_32_bits(specs):
    """tf.TensorSpecs as JAX takes them: it warns of int64 (JAX 0.11), which it makes int32."""
    return tf.nest.map_structure(
        lambda spec: tf.TensorSpec(spec.shape, tf.int32 if spec.dtype == tf.int64 else spec.dtype), specs
    )


def update_loss_metric(model, loss, num_images):
    """Adds a mean loss to the metric "loss", as `keras.Model.train_step` does."""
    model._loss_tracker.update_state(loss, sample_weight=num_images)


@contextmanager
def weights_kept(model) -> Iterator[None]:
    """Gives a model its values back if an exception passes while Keras evaluates it with JAX.

    Keras takes them out of the variables for the duration of `evaluate`, and returns them only at its end.
    """
    values = [(variable, variable._value) for variable in model.variables] if keras.backend.backend() == "jax" else []
    try:
        yield
    except BaseException:
        for variable, value in values:
            if variable._value is None:
                variable._value = value
        raise


def seed_states(model) -> list:
    """States of the random generators of a model's layers, (2,) each."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


@contextmanager
def draws_from(seed) -> Iterator[None]:
    """In this context all random generators of Keras draw from a seed, (2,) int32: each time other numbers."""
    count, method = itertools.count(), keras.random.SeedGenerator.next
    keras.random.SeedGenerator.next = lambda generator, ordered=True: seed + [0, next(count)]
    try:
        yield
    finally:
        keras.random.SeedGenerator.next = method


def is_default_strategy(strategy: tf.distribute.Strategy) -> bool:
    """Whether this is TensorFlow's default strategy, which does not know its devices."""
    return type(strategy).__name__.startswith("_Default")


def function_graph(graph: tf.Graph, name: str) -> tf.Graph | None:
    """The graph of a function that a graph calls, if TensorFlow keeps it."""
    return getattr(graph._get_function(name), "graph", None)


def ema_pairs(optimizer) -> Iterator[tuple]:
    """Each trainable variable and its moving average, of an optimizer that was built with `use_ema`."""
    return zip(optimizer._trainable_variables, optimizer._model_variables_moving_average)


def jax_state(model, kind: str, batch_spec) -> tuple:
    """The first argument of a step with JAX: arrays of all variables that it uses."""
    groups = [model.trainable_variables, model.non_trainable_variables]
    if kind != "inference":
        model._symbolic_build(data_batch=batch_spec)
        groups += [model.optimizer.variables] * (kind == "training") + [model.metrics_variables]
    return tuple([variable.value for variable in group] for group in groups)


class JaxStep:
    """The two halves of `keras.Model.train_step` with JAX: gradients, and the optimizer's step."""

    def __init__(self, model, state):
        self.model = model
        self.weights, layers, self.optimizer, metrics = state
        self.changing = (layers, metrics)

    def gradients(self, changing, x, y, sample_weight) -> tuple[list, tuple]:
        """The gradients of a batch's mean loss, and what it changes."""
        import jax

        loss = jax.value_and_grad(self.model.compute_loss_and_updates, has_aux=True)
        (_, (mean_loss, y_pred, layers, metrics)), gradients = loss(
            self.weights, *changing, x, y, sample_weight, training=True, optimizer_variables=self.optimizer
        )
        _, metrics = self.model._update_metrics_variables(metrics, mean_loss, x, y, y_pred, sample_weight)
        return gradients, (layers, metrics)

    def applied(self, gradients, changing) -> tuple[dict, tuple]:
        """Logs and state after the optimizer's step, as `train_step` returns them."""
        layers, metrics = changing
        weights, optimizer = self.model.optimizer.stateless_apply(self.optimizer, gradients, self.weights)
        with keras.StatelessScope(state_mapping=list(zip(self.model.metrics_variables, metrics))):
            logs = self.model.get_metrics_result()
        return logs, (weights, layers, optimizer, metrics)


class CustomUpdate(keras.optimizers.Optimizer):
    """For Keras optimizers: replaces their update by `replica_update`.

    Keras's own clipping, weight decay and moving averages are turned off; `replica_update` calls what it needs.
    """

    def replica_update(self, gradients: list, variables: list, learning_rate):
        """In replica context: a replica's gradients and the TensorFlow variables to update; with JAX, Keras's."""
        raise NotImplementedError

    def summed(self, gradients: list) -> list:
        """The gradients of all replicas, of which each has its part; with JAX they are sums already."""
        if keras.backend.backend() == "jax":
            return gradients
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]  # those of tables may be IndexedSlices
        if replica := tf.distribute.get_replica_context():
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        return gradients

    def are_finite(self, gradients: list):
        """Whether the global norm of the gradients is finite, a scalar bool."""
        if keras.backend.backend() == "jax":
            return ops.isfinite(sum(ops.sum(ops.square(gradient)) for gradient in gradients))
        return tf.math.is_finite(tf.linalg.global_norm(gradients))

    def clip(self, gradients: list) -> list:
        """Applies clipnorm, global_clipnorm or clipvalue, whichever is set."""
        return super()._clip_gradients(gradients)

    def update_each(self, function: Callable, variables: list, gradients: list, *scalars):
        """Calls function(variable, gradient, *scalars) for each variable, on each device that has a copy of it."""
        if keras.backend.backend() == "jax":
            for variable, gradient in zip(variables, gradients):
                function(variable, gradient, *scalars)
            return

        def merged(strategy, gradients, *scalars):
            for variable, gradient in zip(variables, gradients):
                strategy.extended.update(variable, function, args=(gradient, *scalars), group=False)

        tf.__internal__.distribute.interim.maybe_merge_call(merged, self._distribution_strategy, gradients, *scalars)

    def index_of(self, variable) -> int:
        """Position of a variable in `build`."""
        return self._get_variable_index(variable)

    def is_decayed(self, variable) -> bool:
        """Whether a variable has weight decay: no vector has; for others see `exclude_from_weight_decay`."""
        return bool(self.weight_decay) and len(variable.shape) > 1 and self._use_weight_decay(variable)

    @property
    def averages(self) -> list:
        """The moving averages, in the order of `build`; only with `use_ema`."""
        return self._model_variables_moving_average

    def finalize_variable_values(self, var_list):
        """Leaves the weights as they are: a run may be resumed. Keras would overwrite them with the averages."""

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        variables = trainable_variables
        if keras.backend.backend() == "tensorflow":
            variables = [getattr(variable, "value", variable) for variable in variables]
        self.replica_update(grads, variables, learning_rate)

    def _clip_gradients(self, grads):
        return grads

    def _apply_weight_decay(self, variables):
        pass

    def _update_model_variables_moving_average(self, trainable_variables):
        pass


def check_update_step(kind: type[keras.optimizers.Optimizer]):
    """Raises ValueError for a class of optimizers whose step is not in `update_step` alone."""
    plain = keras.optimizers.Optimizer
    if kind.update_step is plain.update_step or kind._backend_update_step is not plain._backend_update_step:
        raise ValueError(
            "Expected an optimizer that computes the step of a variable in `update_step`, as most of Keras and its "
            f"guide on optimizers do. Received: {kind.__name__}"
        )


class Moments(keras.optimizers.Optimizer):
    """For Keras's Adam, AdamW and Lamb: returns their moments."""

    def moments_of(self, index: int) -> tuple:
        """Means of the gradient and of its square, of the variable at this position in `build`."""
        return self._momentums[index], self._velocities[index]


class ChosenMatrices(keras.optimizers.Muon):
    """`keras.optimizers.Muon` for the variables that `is_orthogonalized` names; AdamW updates the others."""

    def is_orthogonalized(self, variable) -> bool:
        raise NotImplementedError

    def _should_use_adamw(self, variable):
        return not self.is_orthogonalized(variable)


def tensorflow_has_started() -> bool:
    """Whether TensorFlow has executed an operation, after which workers can no longer be joined."""
    return context.context()._context_handle is not None


def key_value_store(with_jax: bool) -> tuple[Callable, Callable] | None:
    """`set(key, value)` and `get(key, milliseconds)` of the coordination service of several processes.

    None on a slice of TPUs that JAX has found by itself.
    """
    if not with_jax:
        return context.context().set_config_key_value, context.context().get_config_key_value
    from jax._src.distributed import global_state

    client = global_state.client
    return client and (client.key_value_set, client.blocking_key_value_get)
