"""Checks of the patch grid of a layer. B batch, N tokens, D width, h w patch grid."""

from keras_vit.integers import is_integer, python_integers


def check_grid(grid) -> tuple[int, int]:
    """Returns (h, w) as a tuple; raises a ValueError unless they are two positive integers."""
    is_pair = isinstance(grid, (tuple, list)) and len(grid) == 2
    if not is_pair or not all(map(is_integer, grid)):
        raise ValueError(f"`grid` must be two positive integers, (rows, columns) of patches. Received: {grid!r}")
    return python_integers(tuple(grid))


def check_tokens(input_shape, grid, prefix_tokens):
    """Raises a ValueError unless (B, N, D) has one token for each prefix token and each patch of the grid."""
    expected = prefix_tokens + grid[0] * grid[1]
    if input_shape[1] != expected:
        raise ValueError(
            f"A grid of {grid} patches and {prefix_tokens} prefix tokens make {expected} tokens. "
            f"Received input shape: {tuple(input_shape)}, which has {input_shape[1]} tokens."
        )
