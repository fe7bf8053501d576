"""How the steps of a compiled model run: replicas with seeds of their own, several steps per call, static loops."""

import tensorflow as tf

from keras_vit.recipes.distributed import JaxDevices, strategy_of
from keras_vit.recipes.training.keras_internals import seed_states

STRIDE = 1_000_003  # between replicas; the seeds of layers are close to each other


def offset_replica_seeds(model):
    """Seeds dropout and stochastic depth differently on every replica; does nothing with one replica.

    With JAX there is nothing to do: one program draws the masks of the whole batch.

    Keras starts each random generator in the same state on all replicas, so they would draw the same masks. Call it
    once per run, after a checkpoint is restored: checkpoints hold the states of the first replica, which do not change.
    """
    strategy, states = strategy_of(model), seed_states(model)

    def offset():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for state in states:
            state.assign(state + tf.cast([STRIDE * replica, 0], state.dtype))

    if states and strategy.num_replicas_in_sync > 1 and not isinstance(strategy, JaxDevices):
        strategy.run(tf.function(offset))


def set_steps_per_execution(model, steps_per_execution: int):
    """Sets the number of steps per call in `fit`."""
    if model.steps_per_execution != steps_per_execution:
        model.steps_per_execution = steps_per_execution
        # Keras builds them once, for the steps of that time, and would skip batches after a change.
        model.train_function = model.test_function = model.predict_function = None
    on_tpu = isinstance(strategy_of(model), tf.distribute.TPUStrategy)
    if steps_per_execution > 1 and on_tpu and model.train_function is None:
        use_static_step_loop(model)


def use_static_step_loop(model):
    """Replaces the train and test functions of a compiled model: `model.steps_per_execution` steps per call, unchecked.

    Keras's functions check before every step whether data remains. Under `TPUStrategy`, that makes the batch size
    dynamic, so the compiler pads batches, and every batch passes through one device. Training data is endless; an
    evaluation checks on the host. Call it after a change of `steps_per_execution`, before `fit`.
    """
    strategy, steps = model.distribute_strategy, model.steps_per_execution

    @tf.function(autograph=False)
    def training(iterator):
        def step(index):
            strategy.run(model.train_step, args=(next(iterator),))
            return (index + 1,)

        tf.while_loop(lambda index: index < steps, step, (tf.constant(0),))

    @tf.function(autograph=False)
    def evaluation(batch):
        strategy.run(model.test_step, args=(batch,))

    def train(iterator):
        training(iterator)
        return model.get_metrics_result()

    def test(iterator):
        for index in range(steps):
            batch = next(iterator, None)  # not in the graph, where metrics of a missing batch would be added
            if batch is None and index == 0:
                raise StopIteration
            if batch is None:
                break
            evaluation(batch)
        return model.get_metrics_result()

    model.train_function, model.test_function = train, test
