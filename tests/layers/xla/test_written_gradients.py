"""Gradients that are written out equal those that TensorFlow derives; for JAX see test_jax_backend.py."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import VisionTransformer
from keras_vit.layers import LayerNorm, Mlp
from keras_vit.layers.resnet.standardized_conv import GroupNorm
from keras_vit.layers.xla.island import can_compile_island
from keras_vit.layers.xla.mlp import gelu_for_training
from keras_vit.layers.xla.recompute import custom_gradient

X = 3 * np.random.default_rng(0).standard_normal((2, 5, 3, 8)) + 2
GELU = {
    "tanh": lambda x: 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "erf": lambda x: 0.5 * x * (1 + tf.math.erf(x / np.sqrt(2))),
    "quick": lambda x: x * tf.sigmoid(1.702 * x),
}
GROUPS = partial(GroupNorm, 4, 1e-5)
NORMS = {"LayerNorm": LayerNorm, "GroupNorm": GROUPS, "GroupNorm, ReLU": GROUPS}
FORMS = pytest.mark.parametrize("form", GELU)


def output_and_gradients(function, *inputs):
    """The output and the gradients of the sum of its sines, whose upstream gradient differs for every element."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(*inputs)
        loss = tf.reduce_sum(tf.sin(tf.cast(output, tf.float64)))
    return output, tape.gradient(loss, inputs)


def randomized(layer):
    layer.build((None, None, None, 8))
    for index, weight in enumerate(layer.weights):
        weight.assign(np.random.default_rng(index).standard_normal(weight.shape))
    return layer


def functions_and_weights(name, dtype):
    """The function with a written-out gradient, the same without, and the weights of a layer."""
    if name in GELU:
        return partial(gelu_for_training, form=name), GELU[name], []
    layer = partial(randomized(NORMS[name](dtype=dtype)), **({"relu": True} if "ReLU" in name else {}))
    written, derived = (lambda x, *_, training=training: layer(x, training=training) for training in (True, False))
    return written, derived, [weight.value for weight in layer.func.weights]


def test_other_backends_derive_them(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    square = custom_gradient(lambda x: (x * x, lambda upstream: pytest.fail("Keras passes other arguments on torch.")))
    np.testing.assert_allclose(output_and_gradients(square, tf.constant([2.0]))[1][0], [4 * np.cos(4)], rtol=1e-6)


@pytest.mark.parametrize("way", ["eager", "static", "dynamic", "XLA"])
@pytest.mark.parametrize("name", [*GELU, *NORMS])
def test_equals_the_derived_gradients(name, way):
    written, derived, weights = functions_and_weights(name, "float64")

    def step(x):
        return output_and_gradients(written, x, *weights)

    if way != "eager":
        shape = (None, None, None, 8) if way == "dynamic" else X.shape
        options = {"autograph": False, "jit_compile": way == "XLA"}
        step = tf.function(step, input_signature=[tf.TensorSpec(shape, tf.float64)], **options)
    output, found = step(tf.constant(X))
    expected, gradients = output_and_gradients(derived, tf.constant(X), *weights)
    tolerance = 1e-13 if name in GELU else 1e-12
    np.testing.assert_allclose(output, expected, atol=tolerance)
    for one, other in zip(found, gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10 if name in NORMS else 1e-7, atol=tolerance)


def second_derivative(function, x, direction, way):
    """The product of the Hessian of the sum of sines of function(x) with a direction, and its central difference."""

    def gradient(x):
        return output_and_gradients(function, x)[1][0]

    def product(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            inner = gradient(x)
        return tape.gradient(inner, x, direction)

    step = 1e-5 * direction
    expected = (gradient(x + step) - gradient(x - step)) / 2e-5
    return (product if way == "eager" else tf.function(product, autograph=False, jit_compile=way == "XLA"))(x), expected


@pytest.mark.parametrize("way", ["eager", "graph", "XLA"])
@pytest.mark.parametrize("name", [*GELU, *NORMS, "ViT", "remat"])
def test_second_derivatives(name, way):
    shape = X.shape
    if name in ("ViT", "remat"):
        shape, remat = (2, 8, 8, 3), "block" if name == "remat" else None
        sizes = {"image_size": 8, "patch_size": 4, "width": 8, "depth": 2, "num_heads": 2, "mlp_dim": 16}
        model = VisionTransformer(**sizes, num_classes=3, remat=remat, dtype="float64")
        function = partial(randomized(model), training=True)
    else:
        function, _, _ = functions_and_weights(name, "float64")
    x, direction = tf.constant(np.random.default_rng(1).standard_normal((2, *shape)))
    found, expected = second_derivative(function, x, direction, way)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_islands_only_in_graphs_that_are_not_compiled_and_without_a_strategy():
    found = []

    def step():
        found.append(can_compile_island())
        return tf.zeros(())

    step()
    tf.function(step)()
    tf.function(step, jit_compile=True)()
    tf.function(lambda: tf.distribute.MirroredStrategy(["CPU:0"]).run(step))()
    assert found == [False, True, False, False]


@pytest.mark.parametrize("name", [*GELU, *NORMS])
def test_islands_are_equal_to_single_operations(name):
    written, _, _ = functions_and_weights(name, "float32")
    x = tf.constant(X, "float32")
    graph = tf.function(lambda x: output_and_gradients(written, x), autograph=False)
    nodes = graph.get_concrete_function(x).graph.as_graph_def().node
    assert sum(node.attr["_XlaMustCompile"].b for node in nodes) == 2  # forward and backward
    (output, (gradient,)), (expected, (derived,)) = graph(x), output_and_gradients(written, x)
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient, derived, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("build", [LayerNorm, *(partial(Mlp, 8, gelu=form) for form in GELU)])
def test_training_equals_inference(build):
    layer, x = randomized(build()), X.astype("float32")
    np.testing.assert_allclose(layer(x, training=True), layer(x, training=False), rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize(("x", "shape"), [(X, [None] * 4), (X[0, 0, 0], [8])])
def test_layer_norm_of_a_vector_and_of_an_unknown_width(x, shape):
    (layer := LayerNorm()).build((None, 8))

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = tf.reduce_sum(layer(x, training=True) ** 3)
        return tape.gradient(output, x)

    x = tf.constant(x, "float32")
    traced = tf.function(gradient, input_signature=[tf.TensorSpec(shape)])
    np.testing.assert_allclose(traced(x), gradient(x), rtol=1e-5, atol=1e-5)


def test_layer_norm_of_equal_values_is_zero_in_a_graph():
    (layer := LayerNorm()).build((None, 192))
    traced = tf.function(lambda x: layer(x, training=True))
    np.testing.assert_array_equal(traced(tf.fill((2, 192), 1000.0)), np.zeros((2, 192)))


def test_group_norm_in_inference_is_that_of_keras():
    x = X[:, :4].astype("float32")  # four groups of either axis
    ours, theirs = randomized(GROUPS()), randomized(keras.layers.GroupNormalization(4, epsilon=1e-5))
    np.testing.assert_array_equal(ours(x), theirs(x))


@FORMS
def test_gelu_far_from_zero_and_in_bfloat16(form):
    x = tf.constant([-1e4, -200, -20, -0.0, 0.0, 20, 200])
    output, (gradient,) = output_and_gradients(partial(gelu_for_training, form=form), x)
    np.testing.assert_allclose(output, [0, 0, 0, 0, 0, 20, 200], atol=1e-6)
    assert np.isfinite(gradient).all()
    x = tf.cast(np.linspace(-6, 6, 500), tf.bfloat16)
    output, (gradient,) = output_and_gradients(partial(gelu_for_training, form=form), x)
    assert output.dtype == gradient.dtype == tf.bfloat16
    expected = GELU[form](tf.cast(x, tf.float32))  # rounded
    np.testing.assert_allclose(tf.cast(output, tf.float32), expected, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_layer_norm_in_half_precision(dtype):
    """Rows whose mean is far above their deviation: a float16 resolves what a mean of squares in float32 does not."""
    layer, x = randomized(LayerNorm(dtype=f"mixed_{dtype}")), tf.constant(100 + 0.0625 * np.sign(X), dtype)
    trained, expected = (tf.cast(layer(x, training=training), "float32") for training in (True, False))
    np.testing.assert_allclose(trained, expected, rtol=1e-2, atol=5e-2)


@pytest.mark.parametrize("name", NORMS)
def test_dtypes_in_mixed_precision(name):
    written, derived, weights = functions_and_weights(name, "mixed_bfloat16")
    x = tf.cast(X, tf.bfloat16)
    output, gradients = output_and_gradients(written, x, *weights)
    assert [tensor.dtype for tensor in (output, *gradients)] == [tf.bfloat16, tf.bfloat16, tf.float32, tf.float32]
    np.testing.assert_allclose(tf.cast(output, tf.float32), tf.cast(derived(x), tf.float32), atol=0.02)
