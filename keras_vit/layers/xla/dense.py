"""A Dense layer on tokens. B batch, N tokens, D width, E units."""

from keras import ops

from keras_vit.layers.remat import compiled_by_xla


def dense(layer, tokens):
    """layer(tokens) of a `keras.layers.Dense` without activation: (B, N, D) -> (B, N, E).

    Keras makes a matrix of B * N rows for it. On a TPU that is a copy, forward and backward, unless N is a multiple of
    8: 197 is none. XLA takes the product of three dimensions as it is. A quantized kernel is Keras's affair.
    """
    if not compiled_by_xla() or len(tokens.shape) != 3 or layer.quantization_mode:
        return layer(tokens)
    product = ops.einsum("bnd,de->bne", tokens, ops.cast(layer.kernel, tokens.dtype))
    return product + ops.cast(layer.bias, tokens.dtype)
