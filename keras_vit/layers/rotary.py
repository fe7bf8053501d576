"""Rotary positions. B batch, N tokens, M tokens that are read, K heads, d head width, h w patch grid."""

import keras
import numpy as np
from keras import ops

from keras_vit.keras_internals import compiled_by_xla
from keras_vit.layers.positions import check_grid, check_tokens

COORDINATES = ("centers", "indices")


@keras.saving.register_keras_serializable(package="keras_vit")
class RotaryPositions(keras.layers.Layer):
    """Rotates queries or keys by angles that are proportional to the row and the column of their patch.

    Products of rotated queries and keys depend on how far apart their patches are ("RoFormer", arXiv 2104.09864; in two
    dimensions "Rotary Position Embedding for Vision Transformer", arXiv 2403.13298, section 3.2). Channels j and
    j + d / 2 of a head are a pair, which is rotated by the angle p theta ** (-4 i / d), i = j mod d / 4. Here p is the
    position of the row for j < d / 4, that of the column for others. Tokens before the patches are not rotated. Nothing
    is learned, and nothing is resampled for another grid.

    Input: queries or keys (B, K, N, d); with `read`, queries (B, K, M, d) of these tokens, see `take_tokens`. Output:
        the same shape.

    Args:
        grid: (h, w), rows and columns of patches.
        prefix_tokens: Number of tokens before the patches.
        theta: Base of the frequencies: 100 in DINOv3 and RoPE-ViT, 10,000 in EVA-02.
        coordinates: "centers": p = 2 pi c, where c is the center of the row or column on a line from -1 to 1 across the
            image (DINOv3, arXiv 2508.10104; its `RopePositionEmbedding`). "indices": p = 0, 1, 2, ... (RoPE-ViT). Or
            (rows, columns) of another grid, to whose indices those of this grid are scaled (EVA-02, arXiv 2303.11331).

    Raises:
        ValueError: `grid` is not two positive integers; 4 does not divide d, or the input has a different number of
            tokens (when built).
    """

    def __init__(self, grid, prefix_tokens=0, theta=100.0, coordinates="centers", **kwargs):
        super().__init__(**kwargs)
        self.grid = check_grid(grid)
        self.prefix_tokens = prefix_tokens
        self.theta = theta
        self.coordinates = coordinates

    def build(self, input_shape):
        check_tokens((input_shape[0], *input_shape[2:]), self.grid, self.prefix_tokens)
        head_width = input_shape[-1]
        if head_width % 4:
            raise ValueError(
                f"Rotary positions require heads whose width is a multiple of 4. Received: width {head_width}. Use "
                "another num_heads or another position embedding."
            )
        frequencies = self.theta ** -(4 / head_width * np.arange(head_width // 4))  # (d / 4,)
        y, x = np.meshgrid(*map(self._positions, (0, 1)), indexing="ij")  # (h, w) each
        angles = np.concatenate([axis.reshape(-1, 1) * frequencies for axis in (y, x)], axis=1)  # (h*w, d / 2)
        angles = np.pad(angles, ((self.prefix_tokens, 0), (0, 0)))  # (N, d / 2)
        self.cosines = np.tile(np.cos(angles), 2).astype("float32")  # (N, d)
        # For the halves in exchanged order: (a, b) becomes (a cos - b sin, b cos + a sin).
        self.sines = np.concatenate([-np.sin(angles), np.sin(angles)], axis=1).astype("float32")  # (N, d)

    def _positions(self, axis):
        """The positions of the rows, (h,), or columns, (w,)."""
        count = self.grid[axis]
        if self.coordinates == "centers":
            return 2 * np.pi * ((2 * np.arange(count) + 1) / count - 1)
        return np.arange(count) * (1 if self.coordinates == "indices" else self.coordinates[axis] / count)

    def call(self, heads, read=None):
        if isinstance(read, int) and read <= self.prefix_tokens:
            return heads
        cosines, sines = (self._rows(table, read, heads.dtype) for table in (self.cosines, self.sines))
        return heads * cosines + exchange_halves(heads) * sines

    def _rows(self, table, read, dtype):
        """Rows of a table (N, d) for the tokens that are read: (1, 1, N, d), (1, 1, M, d), or (B, 1, M, d)."""
        table = ops.cast(table, dtype)
        if read is None or isinstance(read, int):
            return table[None, None, :read]  # GPU delegates multiply tensors of equal rank only
        return ops.take(table, read, axis=0)[:, None]

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        names = ("grid", "prefix_tokens", "theta", "coordinates")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def exchange_halves(heads):
    """The channels d / 2, ..., d - 1, 0, ..., d / 2 - 1 of an array (..., d)."""
    if compiled_by_xla():
        # On a TPU a product with a permutation is cheaper than slices of 32 channels, which fill a quarter of a tile.
        width = heads.shape[-1]
        return ops.matmul(heads, ops.cast(np.roll(np.eye(width), width // 2, axis=1), heads.dtype))
    first, second = ops.split(heads, 2, axis=-1)
    return ops.concatenate([second, first], axis=-1)
