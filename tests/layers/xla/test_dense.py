import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers.xla.mlp import apply_dense

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")


def test_equals_dense_without_reshapes_under_xla():
    layer = keras.layers.Dense(7, bias_initializer="normal")
    layer.build(X.shape)
    for jit in (False, True):
        run = tf.function(lambda x: apply_dense(layer, x), jit_compile=jit)
        np.testing.assert_allclose(run(X), layer(X), atol=1e-5)
        operations = run.get_concrete_function(tf.TensorSpec(X.shape)).graph.get_operations()
        # Without XLA it is left to Keras, which reshapes in 3.15 and not in 3.13.
        assert not jit or not any(operation.type == "Reshape" for operation in operations)


@pytest.mark.parametrize("x,quantized", [(X[0], False), (X, True)], ids=["matrix", "int8"])
def test_matrices_and_quantized_layers_are_left_to_keras(x, quantized):
    layer = keras.layers.Dense(7)
    layer.build(x.shape)
    if quantized:
        layer.quantize("int8")
    run = tf.function(lambda x: apply_dense(layer, x), jit_compile=True)
    np.testing.assert_allclose(run(x), layer(x), atol=1e-5)
