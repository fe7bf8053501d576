"""Random numbers of replicas."""

import tensorflow as tf

STRIDE = 1_000_003  # from replica to replica; layers' own seeds are close to each other


def offset_replica_seeds(model):
    """Gives every replica random numbers of its own for dropout and its like; with one replica, changes nothing.

    Keras gives all replicas one state of each random generator, so that they would draw the same masks. Call it once a
    run, after a checkpoint is restored: checkpoints hold the states of the first replica, which stay as they are.
    """
    states = [variable for variable in model.variables if variable.name == "seed_generator_state"]

    def shift():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for state in states:
            state.assign(state + tf.cast([STRIDE * replica, 0], state.dtype))

    if states and model.distribute_strategy.num_replicas_in_sync > 1:
        model.distribute_strategy.run(tf.function(shift))
