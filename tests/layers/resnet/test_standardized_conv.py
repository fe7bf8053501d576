import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers.resnet.standardized_conv import StandardizedConv2D

X = np.random.default_rng(0).standard_normal((2, 7, 9, 4)).astype("float32")
KERNEL = np.random.default_rng(1).standard_normal((3, 3, 4, 5)) * 0.1 + 0.3


def built(**arguments):
    layer = StandardizedConv2D(5, 3, **arguments)
    layer.build(X.shape)
    layer.set_weights([KERNEL.astype("float32"), *layer.get_weights()[1:]])
    return layer


def standardized(kernel, epsilon, place):
    """In float64, with NumPy's standard deviation."""
    deviation = kernel.std((0, 1, 2)) + epsilon if place == "deviation" else np.sqrt(kernel.var((0, 1, 2)) + epsilon)
    return (kernel - kernel.mean((0, 1, 2))) / deviation


@pytest.mark.parametrize("place", ["deviation", "variance"])
def test_equals_convolution_with_the_standardized_kernel(place):
    for epsilon, strides, padding in ((1e-10, 1, "same"), (1e-5, 2, "same"), (0.02, 2, "valid")):
        layer = built(epsilon=epsilon, epsilon_on=place, strides=strides, padding=padding)
        kernel = standardized(KERNEL, epsilon, place)
        np.testing.assert_allclose(layer.standardize(layer.kernel), kernel, atol=1e-5)
        expected = tf.nn.conv2d(X.astype("float64"), kernel, strides, padding.upper())
        np.testing.assert_allclose(layer(X), expected, atol=1e-4)
        np.testing.assert_allclose(tf.function(layer)(X), expected, atol=1e-4)
        assert layer.compute_output_shape(X.shape) == expected.shape


def test_gradient_through_the_standardization():
    layer, direction = built(padding="same"), np.random.default_rng(2).standard_normal(KERNEL.shape)
    weighting = np.random.default_rng(3).standard_normal((2, 7, 9, 5))

    def loss(kernel):
        return np.sum(weighting * tf.nn.conv2d(X.astype("float64"), standardized(kernel, 1e-5, "deviation"), 1, "SAME"))

    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(X) * weighting.astype("float32"))
    gradient = np.asarray(tape.gradient(value, layer.trainable_weights)[0])
    numerical = (loss(KERNEL + 1e-6 * direction) - loss(KERNEL - 1e-6 * direction)) / 2e-6
    assert np.sum(gradient * direction) == pytest.approx(numerical, rel=1e-3)
    # The output does not change with a filter's mean or scale, so nothing pulls in these directions.
    size = np.abs(gradient).max()
    np.testing.assert_allclose(gradient.sum((0, 1, 2)) / size, 0, atol=1e-4)
    np.testing.assert_allclose((gradient * KERNEL).sum((0, 1, 2)) / size, 0, atol=1e-3)


def test_filter_of_equal_weights_has_finite_gradients():
    layer = built()
    layer.set_weights([np.full(KERNEL.shape, 0.25, "float32")])
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(X) ** 2)
    assert value == 0
    assert np.isfinite(tape.gradient(value, layer.trainable_weights)[0]).all()


def test_mixed_precision_computes_statistics_before_rounding():
    layer, mixed = built(), built(dtype="mixed_bfloat16")
    kernel = (1 + 1e-3 * KERNEL).astype("float32")  # in bfloat16 all of them are 1
    layer.set_weights([kernel]), mixed.set_weights([kernel])
    output = mixed(X)
    assert output.dtype == "bfloat16" and mixed.kernel.dtype == "float32"
    scale = np.abs(layer(X)).max()
    np.testing.assert_allclose(np.asarray(output, "float32") / scale, layer(X) / scale, atol=0.02)


def test_defaults():
    layer = StandardizedConv2D(256, (3, 3), strides=2, padding="same")
    layer.build((None, 8, 8, 64))
    assert [weight.name for weight in layer.weights] == ["kernel"] and layer.data_format == "channels_last"
    assert np.std(layer.kernel) == pytest.approx((9 * 64) ** -0.5, rel=0.02)
    with pytest.raises(ValueError, match="Received: 'std'"):
        StandardizedConv2D(4, 3, epsilon_on="std")
