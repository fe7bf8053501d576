"""Splitting and merging attention heads. B batch, N tokens, D width, K heads, d head width (D / K)."""

import keras
from keras import ops

from keras_vit.layers.tokens import take_tokens


def check_heads(width, num_heads):
    """Raises a ValueError unless the heads divide the width; the message lists numbers of heads that do."""
    if num_heads < 1 or width % num_heads:
        fitting = [heads for heads in range(1, min(width, 64) + 1) if width % heads == 0]
        raise ValueError(
            f"`num_heads` must divide the width. Received: num_heads={num_heads}, width={width}. "
            f"Numbers of heads that divide {width}: {', '.join(map(str, fitting))}"
        )


def split_heads(x, num_heads):
    """(B, N, D) -> (B, K, N, d)."""
    x = ops.reshape(x, (-1, x.shape[1], num_heads, x.shape[2] // num_heads))  # (B, N, K, d)
    return ops.transpose(x, (0, 2, 1, 3))  # (B, K, N, d)


def merge_heads(x):
    """(B, K, N, d) -> (B, N, D)."""
    x = ops.transpose(x, (0, 2, 1, 3))  # (B, N, K, d)
    return ops.reshape(x, (-1, x.shape[1], x.shape[2] * x.shape[3]))  # (B, N, D)


def spec_with_attention(layer, tokens, heads, return_attention, read=None):
    """A layer's output for symbolic tokens (B, N, D), and weights (B, *heads, N, N) if requested.

    The output is (B, N, D); with `read`, see `take_tokens`, it is (B, M, D), the weights (B, *heads, M, N).
    """
    rows = tokens if read is None else take_tokens(tokens, read)
    output = keras.KerasTensor(rows.shape, layer.compute_dtype)
    if not return_attention:
        return output
    return output, keras.KerasTensor((rows.shape[0], *heads, rows.shape[1], tokens.shape[1]), layer.compute_dtype)
