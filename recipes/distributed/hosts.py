"""Each machine of a run decodes its own part of every batch, and no other."""

import tensorflow as tf

from keras_vit.recipes.data.pipeline import ONE_HOST


def shard_batches(strategy: tf.distribute.Strategy, batches, batch_size: int):
    """Data for `fit` or `evaluate` under a strategy; together the machines have the batches that one alone would have.

    Keras would let every machine make all batches and throw away what is not its own.

    Args:
        strategy: The strategy of the model.
        batches: Function from a host, (i, n), to the tf.data.Dataset of the i-th of n equal parts of every batch.
        batch_size: Of all machines and replicas together.
    """
    if not isinstance(strategy, (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.TPUStrategy)):
        return batches(ONE_HOST)

    def of_host(context):
        host = (context.input_pipeline_id, context.num_input_pipelines)
        replica = context.get_per_replica_batch_size(batch_size)
        return batches(host).rebatch(replica, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(of_host)
