"""Layer normalisation in the form that devices and quantizers take well."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, written as subtract, mean of squares, scale.

    Keras computes x * a + (b - mean * a), which loses digits where |mean| is large against the deviation, the more so
    in integers; this form does not, is faster on a CPU (docs/results.md) and converts to operations that quantizers
    know. Statistics are in float32 at least. Epsilon is 1e-6 as in the paper's code (Keras: 1e-3).

    Input: (..., D). Output: (..., D).
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)

    def call(self, inputs):
        precise = keras.backend.result_type(inputs.dtype, "float32")
        x = ops.cast(inputs, precise)
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        output = centred * ops.rsqrt(variance + self.epsilon)
        if self.scale:
            output = output * ops.cast(self.gamma, precise)
        if self.center:
            output = output + ops.cast(self.beta, precise)
        return ops.cast(output, self.compute_dtype)
