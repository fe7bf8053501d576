"""A Dense layer on tokens without a copy, whole or for some of its units. B batch, N tokens, D width, E units."""

from functools import partial

from keras import ops

from keras_vit.keras_internals import compiled_by_xla, is_quantized


def apply_dense(layer, tokens):
    """layer(tokens) of a `keras.layers.Dense` without activation: (B, N, D) -> (B, N, E).

    Keras reshapes the tokens to a matrix of B * N rows. On a TPU that is a copy, forward and backward, unless N is a
    multiple of 8, which 197 is not. XLA multiplies three-dimensional tensors directly. Quantized kernels are left to
    Keras.
    """
    if not compiled_by_xla() or len(tokens.shape) != 3 or is_quantized(layer):
        return layer(tokens)
    return _product(tokens, layer.kernel, layer.bias)


def apply_units(layer, tokens, units: slice):
    """layer(tokens)[..., units], of which only these units are computed: (B, N, D) -> (B, N, E)."""
    if is_quantized(layer):
        return layer(tokens)[..., units]
    return _product(tokens, layer.kernel[:, units], layer.bias[units])


def _product(tokens, kernel, bias):
    multiply = partial(ops.einsum, "bnd,de->bne") if compiled_by_xla() else ops.matmul
    return multiply(tokens, ops.cast(kernel, tokens.dtype)) + ops.cast(bias, tokens.dtype)
