"""A model's training and evaluation step as one replica of a TPU computes them. B batch of a replica."""

from contextlib import contextmanager

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops


def training_step(model):
    """The step of `fit`: a function of (inputs, labels) that gives the metrics."""
    return lambda *data: model.train_step(data)


def evaluation_step(model):
    """The step of `evaluate`: a function of (inputs, labels, weights) that gives the metrics."""
    return lambda *data: model.test_step(data)


def inference_step(model):
    """The forward pass of `predict`: a function of inputs."""
    return lambda inputs: model(inputs, training=False)


@contextmanager
def summed_over(model, replicas: int):
    """What is traced meanwhile is one replica of a data-parallel program: gradients are summed as `TPUStrategy` does.

    Args:
        model: Compiled, with an optimizer of `keras_vit.recipes.training.optimizers` or one of Keras.
        replicas: Devices that run the program together.
    """
    model.optimizer.build(model.trainable_variables)

    def summed(pairs):
        return [(_all_reduce(tf.convert_to_tensor(grad), replicas), variable) for grad, variable in pairs]

    if replicas > 1:
        model.optimizer._all_reduce_sum_gradients = summed
    try:
        yield
    finally:
        if replicas > 1:
            del model.optimizer._all_reduce_sum_gradients


def _all_reduce(value, replicas):
    everybody = [list(range(replicas))]
    return gen_xla_ops.xla_all_reduce(value, group_assignment=everybody, reduce_op="Add", mode="CrossReplica")
