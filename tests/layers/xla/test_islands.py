from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from gradients import output_and_gradients

from keras_vit.layers import Mlp
from keras_vit.layers.xla.gelu import gelu_for_training
from keras_vit.layers.xla.islands import can_compile_island
from keras_vit.layers.xla.norm import layer_norm_for_training

X = tf.constant(np.random.default_rng(0).standard_normal((4, 6)), tf.float32)


def norm(x):
    return layer_norm_for_training(x, tf.range(1.0, 7.0), tf.ones(6), 1e-6, "float32")


def test_only_in_graphs_that_are_not_compiled_and_without_a_strategy():
    found = []

    def step():
        found.append(can_compile_island())
        return tf.zeros(())

    step()
    tf.function(step)()
    tf.function(step, jit_compile=True)()
    tf.function(lambda: tf.distribute.MirroredStrategy(["CPU:0"]).run(step))()
    assert found == [False, True, False, False]


def activation(gelu, x):
    """That of training; operation by operation in eager mode."""
    return Mlp(8, gelu=gelu)._activate(x, training=True)


FUNCTIONS = (gelu_for_training, partial(activation, "erf"), partial(activation, "quick"), norm)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_equal_to_single_operations(function):
    def step(x):
        return output_and_gradients(function, x)

    graph = tf.function(step, autograph=False)
    compiled = [
        node for node in graph.get_concrete_function(X).graph.as_graph_def().node if node.attr["_XlaMustCompile"].b
    ]
    assert len(compiled) == 2  # forward and backward
    output, (gradient,) = graph(X)
    expected, (derived,) = step(X)
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient, derived, rtol=1e-5, atol=2e-5)
