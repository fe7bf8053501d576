"""Layer normalization, in a form that devices and quantizers compute well. D width."""

from functools import partial

import keras
import numpy as np
from keras import ops

from keras_vit.layers.xla.island import can_compile_island, island, sums_by_product
from keras_vit.layers.xla.recompute import custom_gradient


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, computed as subtract, mean of squares, scale.

    Keras computes x * a + (b - mean * a), which loses precision where the mean is large compared to the deviation,
    especially in integers; this form does not, and converts to operations that quantizers recognize. Statistics are
    computed in at least float32. Epsilon is 1e-6 as in the paper's code (Keras: 1e-3). The gradient in training is
    explicit, with the same numbers.

    Input: (..., D). Output: (..., D).

    Raises:
        ValueError: `axis` is not the last one (when built).
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)

    def build(self, input_shape):
        last = len(input_shape) - 1
        if any(axis not in (-1, last) for axis in np.ravel(self.axis)):
            raise ValueError(f"`LayerNorm` normalizes the last axis: use axis=-1. Received: axis={self.axis}")
        super().build(input_shape)

    def call(self, inputs, training=None):
        if training and self.scale and self.center:
            return layer_norm_for_training(inputs, self.gamma, self.beta, self.epsilon, self.compute_dtype)
        precise = keras.backend.result_type(inputs.dtype, "float32")
        x = ops.cast(inputs, precise)
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        output = centered * ops.rsqrt(variance + self.epsilon)
        if self.scale:
            output = output * ops.cast(self.gamma, precise)
        if self.center:
            output = output + ops.cast(self.beta, precise)
        return ops.cast(output, self.compute_dtype)


def layer_norm_for_training(x, gamma, beta, epsilon, dtype):
    """Layer normalization over the last axis; its gradient reads x less often than automatic differentiation.

    With g the upstream gradient times gamma and n the normalized x, the gradient of x is
    (g - mean(g) - n mean(g n)) / sigma. Besides x, two numbers per row are stored for it.

    The variance of a bfloat16 x is the mean of its squares minus the square of its mean, so that x is read once for
    both: the cancellation error in float32 is smaller than the rounding error of such an x. float16 is more precise.

    x is (..., D), `gamma` and `beta` are (D,). The output, (..., D), has the `dtype`; all else is in at least float32.
    """
    precise = keras.backend.result_type(x.dtype, "float32")

    @custom_gradient
    def norm(x, gamma, beta):
        if can_compile_island() and len(x.shape) > 1 and x.shape[-1] is not None:
            output, center, factor = island(_output)(x, gamma, beta, epsilon, dtype)
            return output, partial(island(_gradient_of_output), x, center, factor, gamma)
        normalized, _, factor = _normalize(x, epsilon, _mean)
        gradient = partial(_gradient, normalized, factor, gamma, x.dtype, _mean, _total)
        return ops.cast(normalized * gamma + beta, dtype), gradient

    return norm(x, ops.cast(gamma, precise), ops.cast(beta, precise))


def _normalize(x, epsilon, mean):
    """The normalized x, (..., D), and the mean and 1 / sigma of its rows, (..., 1), in at least float32."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    wide = ops.cast(x, keras.backend.result_type(dtype, "float32"))
    center = mean(wide)
    centered = wide - center
    if dtype == "bfloat16":
        variance = ops.maximum(mean(ops.square(wide)) - ops.square(center), 0.0)
    else:
        variance = mean(ops.square(centered))
    factor = ops.rsqrt(variance + epsilon)
    return centered * factor, center, factor


def _gradient(normalized, factor, gamma, dtype, mean, total, upstream):
    """Gradients for x, gamma and beta."""
    upstream = ops.cast(upstream, normalized.dtype)
    scaled = upstream * gamma
    slope, shift = mean(scaled * normalized), mean(scaled)  # (..., 1)
    for_x = (scaled - shift - normalized * slope) * factor
    return ops.cast(for_x, dtype), total(upstream * normalized), total(upstream)


def _mean(rows):
    """(..., D) -> (..., 1)."""
    return ops.mean(rows, axis=-1, keepdims=True)


def _total(rows):
    """(..., D) -> (D,)."""
    return ops.sum(rows, axis=tuple(range(len(rows.shape) - 1)))


def _output(x, gamma, beta, epsilon, dtype):
    """For an island: the output, the mean and 1 / sigma."""
    normalized, center, factor = _normalize(x, epsilon, _mean_by_product)
    return ops.cast(normalized * gamma + beta, dtype), center, factor


def _gradient_of_output(x, center, factor, gamma, upstream):
    """The gradients of `_output`, which read x again instead of the larger normalized x."""
    normalized = (ops.cast(x, gamma.dtype) - center) * factor
    return _gradient(normalized, factor, gamma, x.dtype, _mean_by_product, _total_by_product, upstream)


def _mean_by_product(rows):
    """`_mean` as a product with a constant: XLA for CPUs does not vectorize sums along the last axis."""
    width = rows.shape[-1]
    return ops.matmul(rows, ops.ones((width, 1), rows.dtype)) / width  # 1 / width is not exact


def _total_by_product(rows):
    return ops.sum(sums_by_product(rows), axis=0)
