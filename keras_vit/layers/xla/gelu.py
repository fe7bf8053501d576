"""The Gaussian error linear unit with an explicit gradient."""

import keras
from keras import ops

from keras_vit.layers.xla.barriers import in_current_name_scope

# 2 sqrt(2 / pi), and that times the coefficient of the cubic term.
LINEAR = 1.5957691216057308
CUBIC = LINEAR * 0.044715


@ops.custom_gradient
def gelu_for_training(x):
    """The tanh form of GELU ("Gaussian Error Linear Units", arXiv 1606.08415, section 2) with an explicit gradient.

    0.5 x (1 + tanh(u)) is x sigmoid(2 u), which reads and writes the largest tensors of a block less often, and its
    derivative reuses the sigmoid. It is computed in at least float32: bfloat16 is slower on a CPU, operation by
    operation. For inference `keras.ops.gelu` is better, because converters recognize it.

    Input: any shape. Output: the same shape and dtype.
    """
    dtype = keras.backend.standardize_dtype(x.dtype)
    precise = keras.backend.result_type(dtype, "float32")
    wide = ops.cast(x, precise)
    gate = ops.sigmoid(wide * (ops.square(wide) * CUBIC + LINEAR))
    output = wide * gate

    def gradient(upstream):
        derivative = gate + (output - output * gate) * (ops.square(wide) * (3 * CUBIC) + LINEAR)
        return ops.cast(ops.cast(upstream, precise) * derivative, dtype)

    return ops.cast(output, dtype), in_current_name_scope(gradient)
