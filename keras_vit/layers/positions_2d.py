"""2-D positions, by row and column: learnable, and fixed sines and cosines. h w patch grid, N tokens, D width."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.positions import check_grid, check_tokens


def check_width(width, divisor, kind):
    """Raises a ValueError unless the divisor divides the width."""
    if width % divisor:
        raise ValueError(
            f"{kind} positions require a width that is a multiple of {divisor}. Received: width={width}. "
            f"Use {width // divisor * divisor + divisor} or another position embedding."
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding2D(keras.layers.Layer):
    """Adds learnable embeddings of a patch's column and row, D / 2 numbers each, concatenated (appendix D.4).

    Each token before the patches has its own row of full width. Initial values are normal with standard deviation 0.02.

    Input: (B, prefix_tokens + h * w, D). Output: the same shape.

    Args:
        grid: (h, w), rows and columns of patches.
        prefix_tokens: Number of tokens before the patches.

    Raises:
        ValueError: `grid` is not two positive integers; the width is odd, or the input has a different number of
            tokens (when built).
    """

    def __init__(self, grid, prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.grid = check_grid(grid)
        self.prefix_tokens = prefix_tokens

    def build(self, input_shape):
        check_tokens(input_shape, self.grid, self.prefix_tokens)
        width = input_shape[2]
        check_width(width, 2, "Learned 2-D")
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.columns = self.add_weight(shape=(self.grid[1], width // 2), initializer=normal, name="columns")
        self.rows = self.add_weight(shape=(self.grid[0], width // 2), initializer=normal, name="rows")
        if self.prefix_tokens:
            self.prefix = self.add_weight(shape=(self.prefix_tokens, width), initializer=normal, name="prefix")

    @property
    def table(self):
        """The positions that are added: (1, N, D)."""
        (h, w), half = self.grid, self.rows.shape[-1]
        columns = ops.broadcast_to(ops.convert_to_tensor(self.columns)[None], (h, w, half))  # (h, w, D / 2)
        rows = ops.broadcast_to(ops.convert_to_tensor(self.rows)[:, None], (h, w, half))  # (h, w, D / 2)
        table = ops.reshape(ops.concatenate([columns, rows], axis=-1), (1, h * w, 2 * half))  # (1, h*w, D)
        if self.prefix_tokens:
            table = ops.concatenate([ops.convert_to_tensor(self.prefix)[None], table], axis=1)  # (1, N, D)
        return table

    def call(self, tokens):
        return tokens + ops.cast(self.table, tokens.dtype)  # (B, N, D)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid, "prefix_tokens": self.prefix_tokens}


@keras.saving.register_keras_serializable(package="keras_vit")
class SinCosPositions(keras.layers.Layer):
    """Adds fixed sines and cosines of a patch's column and row; nothing is learned.

    "Better plain ViT baselines for ImageNet-1k" (arXiv 2205.01580) and big_vision, models/vit.py: sin x, cos x, sin y,
    cos y, D / 4 numbers each, frequencies temperature ** (-i / (D / 4 - 1)). Nothing is added to prefix tokens.

    Input: (B, prefix_tokens + h * w, D). Output: the same shape.

    Args:
        grid: (h, w), rows and columns of patches.
        prefix_tokens: Number of tokens before the patches.

    Raises:
        ValueError: `grid` is not two positive integers; 4 does not divide the width, or the input has a different
            number of tokens (when built).
    """

    TEMPERATURE = 10_000.0

    def __init__(self, grid, prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.grid = check_grid(grid)
        self.prefix_tokens = prefix_tokens

    def build(self, input_shape):
        check_tokens(input_shape, self.grid, self.prefix_tokens)
        width = input_shape[2]
        check_width(width, 4, "Sine and cosine")
        frequencies = self.TEMPERATURE ** -np.linspace(0.0, 1.0, width // 4)  # (D / 4,)
        y, x = (axis.reshape(-1, 1) * frequencies for axis in np.mgrid[: self.grid[0], : self.grid[1]])  # (h*w, D / 4)
        patches = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)  # (h*w, D)
        self.table = np.pad(patches, ((self.prefix_tokens, 0), (0, 0)))[None].astype("float32")  # (1, N, D)

    def call(self, tokens):
        return tokens + ops.cast(self.table, tokens.dtype)  # (B, N, D)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid, "prefix_tokens": self.prefix_tokens}
