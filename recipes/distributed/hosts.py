"""Sharding of batches: each host decodes only its part of every batch."""

from collections.abc import Callable

import tensorflow as tf

from keras_vit.recipes.data import ImageDataset, count_examples, evaluation_batches
from keras_vit.recipes.data.pipeline import ONE_HOST
from keras_vit.recipes.distributed.jax_devices import JaxDevices
from keras_vit.recipes.distributed.strategy import Strategy
from keras_vit.recipes.recipe import Data


def shard_batches(strategy: Strategy, batches: Callable, batch_size: int):
    """Data for `fit` or `evaluate` under a strategy: the hosts together read the batches that a single host would.

    Keras would let every host decode all batches and discard all but its part.

    Args:
        strategy: The strategy of the model.
        batches: Function from a host, (i, n), to the tf.data.Dataset of the i-th of n equal parts of every batch.
        batch_size: Global batch size.
    """
    if isinstance(strategy, JaxDevices):
        return batches((strategy.process, strategy.processes))
    if not isinstance(strategy, (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.TPUStrategy)):
        return batches(ONE_HOST)

    def batches_of_host(context):
        host = (context.input_pipeline_id, context.num_input_pipelines)
        replica_batch = context.get_per_replica_batch_size(batch_size)
        return batches(host).rebatch(replica_batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(batches_of_host)


def shard_evaluation(strategy: Strategy, data: Data, dataset: ImageDataset, split: str):
    """Batches of a split for `evaluate` under a strategy, and their number, which a sharded dataset does not know."""
    sharded = shard_batches(strategy, lambda host: evaluation_batches(data, dataset, split, host=host), data.batch_size)
    return sharded, -(-count_examples(dataset, split) // data.batch_size)
