"""The grid of patches that layers are made for. B batch, N tokens, D width, h w patch grid."""

from keras_vit.integers import is_integer, python_integers


def check_grid(grid) -> tuple[int, int]:
    """Returns (h, w) as a tuple; raises ValueError unless they are two positive integers."""
    is_pair = isinstance(grid, (tuple, list)) and len(grid) == 2
    if not is_pair or not all(map(is_integer, grid)):
        raise ValueError(f"`grid` must be two positive integers, (rows, columns) of patches. Received: {grid!r}")
    return python_integers(tuple(grid))


def check_tokens(input_shape, grid, prefix_tokens):
    """Raises a ValueError unless (B, N, D) are the tokens of a grid after the prefix tokens."""
    expected = prefix_tokens + grid[0] * grid[1]
    if input_shape[1] != expected:
        raise ValueError(
            f"A grid of {grid} patches and {prefix_tokens} prefix tokens make {expected} tokens. "
            f"Received input shape: {tuple(input_shape)}, of {input_shape[1]} tokens."
        )
