"""Names what is gone when a newer Keras or TensorFlow moves a private part that the core uses."""

import importlib
import operator

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.keras_internals import (
    all_layers,
    compiled_by_xla,
    fixed_seeds,
    inside_lambda,
    is_quantized,
    seed_generators,
    xla_optimization_barrier,
)

PRIVATE = [
    ("tensorflow.compiler.tf2xla.ops.gen_xla_ops", "xla_optimization_barrier"),
    ("tensorflow.python.framework.ops", "gradient_registry._registry"),
    ("tensorflow.python.ops.control_flow_util", "GraphOrParentsInXlaContext"),
    ("keras.layers", "Layer._flatten_layers"),
    ("keras.layers", "Layer.quantization_mode"),
    ("keras.random", "SeedGenerator.next"),
]


@pytest.mark.parametrize("module,name", PRIVATE)
def test_it_exists(module, name):
    assert operator.attrgetter(name)(importlib.import_module(module)) is not None


def test_inside_lambda():
    found, inputs = [], keras.Input((2,))
    keras.layers.Lambda(lambda x: (found.append(inside_lambda()), x)[1])(inputs)
    keras.Model(inputs, keras.layers.Dense(1)(inputs))
    assert found and all(found) and not inside_lambda()


def test_compiled_by_xla_and_barrier():
    found = []

    def trace(x):
        found.append(compiled_by_xla())
        return xla_optimization_barrier(x) if found[-1] else x

    x = [tf.constant([1.0, 2.0]), tf.constant(3)]
    for run in (trace, tf.function(trace), tf.function(trace, jit_compile=True)):
        for one, other in zip(run(x), x, strict=True):
            np.testing.assert_array_equal(one, other)
    assert found == [False, False, True]


def test_fixed_seeds_replace_the_next_ones_and_nest():
    generator, layer = keras.random.SeedGenerator(1), keras.layers.Dropout(0.5, seed=2)
    assert seed_generators([layer, keras.layers.Dropout(0.0)]) == [layer.seed_generator]
    expected = keras.random.uniform((3,), seed=keras.random.SeedGenerator(5))
    inner, outer = (keras.random.SeedGenerator(seed).next() for seed in (5, 6))
    state = np.asarray(generator.state)
    with fixed_seeds([generator], [outer]):
        with fixed_seeds([generator], [inner]):
            np.testing.assert_array_equal(keras.random.uniform((3,), seed=generator), expected)
        assert generator.next() is outer
    np.testing.assert_array_equal(generator.state, state)
    np.testing.assert_array_equal(generator.next(), keras.random.SeedGenerator(1).next())


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_layers_of_a_model_and_quantization():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    assert model.layers[0] in all_layers(model) and not any(map(is_quantized, all_layers(model)))
    model.quantize("int8")
    assert any(map(is_quantized, all_layers(model)))
