"""A Dense layer on tokens without a copy. B batch, N tokens, D width, E units."""

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
    product = ops.einsum("bnd,de->bne", tokens, ops.cast(layer.kernel, tokens.dtype))
    return product + ops.cast(layer.bias, tokens.dtype)
