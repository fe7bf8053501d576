"""Random seeds of replicas."""

import tensorflow as tf

from keras_vit.recipes.distributed.jax_devices import JaxDevices
from keras_vit.recipes.distributed.strategy import strategy_of
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
