"""Layer normalization in the form that devices and quantizers take well."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.remat import named


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, written as subtract, mean of squares, scale.

    Keras computes x * a + (b - mean * a), which loses digits where the mean is large against the deviation, the more
    so in integers; this form does not, is faster on a CPU (docs/results.md) and converts to operations that quantizers
    know. Statistics are in float32 at least. Epsilon is 1e-6 as in the paper's code (Keras: 1e-3). In training the
    gradient is written out, see `trained_norm`; the numbers are the same.

    Input: (..., D). Output: (..., D).

    Raises:
        ValueError: An `axis` that is not the last (when built).
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)

    def build(self, input_shape):
        last = len(input_shape) - 1
        if any(axis not in (-1, last) for axis in np.ravel(self.axis)):
            raise ValueError(f"`LayerNorm` normalizes the last axis: leave `axis` at -1. Received: axis={self.axis}")
        super().build(input_shape)

    def call(self, inputs, training=None):
        if training and self.scale and self.center:
            return trained_norm(inputs, self.gamma, self.beta, self.epsilon, self.compute_dtype)
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


def trained_norm(x, gamma, beta, epsilon, dtype):
    """Layer normalization over the last axis with a gradient written out, in fewer passes than derived step by step.

    With g the upstream gradient times gamma and n the normalized x, that of x is (g - mean(g) - n mean(g n)) / sigma.
    Besides x, two numbers a row are kept for it.

    The variance of a half-precision x is that of its squares less that of its mean, so that both come from one pass
    over x: what cancels in float32 is below what such an x has lost itself.

    Args:
        x: (..., D).
        gamma, beta: (D,).
        epsilon: Under the root.
        dtype: Of the result, (..., D); all else is in float32 at least.
    """
    given = keras.backend.standardize_dtype(x.dtype)
    precise = keras.backend.result_type(given, "float32")

    @ops.custom_gradient
    def norm(x, gamma, beta):
        wide = ops.cast(x, precise)
        mean = ops.mean(wide, axis=-1, keepdims=True)  # (..., 1)
        centered = wide - mean
        if given == precise:
            variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)  # (..., 1)
        else:
            variance = ops.maximum(ops.mean(ops.square(wide), axis=-1, keepdims=True) - ops.square(mean), 0.0)
        factor = ops.rsqrt(variance + epsilon)  # (..., 1)
        normalized = centered * factor

        def gradient(upstream):
            upstream = ops.cast(upstream, precise)
            examples = tuple(range(len(x.shape) - 1))
            scaled = upstream * gamma
            slope = ops.mean(scaled * normalized, axis=-1, keepdims=True)  # (..., 1)
            shift = ops.mean(scaled, axis=-1, keepdims=True)  # (..., 1)
            for_x = (scaled - shift - normalized * slope) * factor
            for_gamma = ops.sum(upstream * normalized, axis=examples)  # (D,)
            return ops.cast(for_x, given), for_gamma, ops.sum(upstream, axis=examples)

        return ops.cast(normalized * gamma + beta, dtype), named(gradient)

    return norm(x, ops.cast(gamma, precise), ops.cast(beta, precise))
