"""The training, evaluation and inference step of a model as one TPU replica computes them."""

from contextlib import contextmanager

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops


def training_step(model):
    """The step of `fit`: a function of (inputs, labels) that returns the metrics."""
    return lambda *data: model.train_step(data)


def evaluation_step(model):
    """The step of `evaluate`: a function of (inputs, labels, sample weights) that returns the metrics."""
    return lambda *data: model.test_step(data)


def inference_step(model):
    """The forward pass of `predict`: a function of the inputs."""
    return lambda inputs: model(inputs, training=False)


@contextmanager
def cross_replica_sums(replicas: int):
    """Within this context, traced steps sum over replicas as under `TPUStrategy`.

    Optimizers call `all_reduce` of the replica context for the gradients. Without a strategy it would do nothing; here
    it adds XLA's operation.

    Args:
        replicas: Number of devices that run the program together.

    Raises:
        ValueError: Called in a strategy's scope.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError("A preflight must be run outside of a strategy's scope.")
    if replicas == 1:
        yield
        return

    def all_reduce(reduce_op, value, options=None):
        if reduce_op != tf.distribute.ReduceOp.SUM:
            raise NotImplementedError(f"all_reduce supports SUM only. Received: {reduce_op}")
        return tf.nest.map_structure(lambda tensor: _xla_sum(tf.convert_to_tensor(tensor), replicas), value)

    context.all_reduce = all_reduce
    try:
        yield
    finally:
        del context.all_reduce


def _xla_sum(value, replicas):
    one_group = [list(range(replicas))]
    return gen_xla_ops.xla_all_reduce(value, group_assignment=one_group, reduce_op="Add", mode="CrossReplica")
