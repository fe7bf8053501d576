"""Position embeddings: learnable, by row and column, and fixed sines and cosines. h w patch grid, N tokens, D width."""

import keras
import numpy as np
from keras import ops

from keras_vit.images import is_integer
from keras_vit.layers.config import python_integers

RESAMPLINGS = ("corners", "half_pixel", "bicubic", "bicubic_offset", "bicubic_antialias")
# Against rounding errors of the factor that DINO's code passes to PyTorch; it moves the samples too.
OFFSET = 0.1


class _Positions(keras.layers.Layer):
    """Adds a `table`, (1, N, D), to the tokens of a patch grid (h, w) with tokens before the patches."""

    def __init__(self, grid, prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.grid = check_grid(grid)
        self.prefix_tokens = prefix_tokens

    def call(self, tokens):
        return tokens + ops.cast(self.table, tokens.dtype)  # (B, N, D)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid": self.grid, "prefix_tokens": self.prefix_tokens}


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding(_Positions):
    """Adds a learnable 1-D position table, E_pos of the paper's equation 1.

    Initial values are normal with standard deviation 0.02.

    Input: (B, prefix_tokens + h * w, D). Output: the same shape.

    Args:
        grid: (h, w), rows and columns of patches.
        prefix_tokens: Number of tokens before the patches, each with its own row: 1 with a class token, else 0.

    Raises:
        ValueError: `grid` is not two positive integers; the input has a different number of tokens (when built).
    """

    def build(self, input_shape):
        check_tokens(input_shape, self.grid, self.prefix_tokens)
        self.table = self.add_weight(
            shape=(1, *input_shape[1:]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="table",
        )


def resample_grid(table, source, target, resample="corners", prefix_tokens=0):
    """Resamples a position table from one patch grid to another; the prefix rows (class token) are unchanged.

    Args:
        table: Array (1, prefix_tokens + h * w, D), or the same without the leading 1.
        source: (h, w) of the table.
        target: (h, w) of the result; need not be square.
        resample: "corners", linear with aligned corners, as google-research/vision_transformer (scipy's `zoom` of order
            1); "half_pixel", linear with half-pixel centers, as `tf.image.resize`; "bicubic", half-pixel centers and
            Keys' kernel with a = -0.75, as Hugging Face and DeiT (PyTorch's `interpolate`); "bicubic_offset", the
            same on a grid that is 0.1 longer, as DINO and DINOv2 (`interpolate_pos_encoding`); "bicubic_antialias", as
            "bicubic" with a = -0.5, no samples beyond the border and smoothing when shrinking, as timm (and Pillow).
            The others do not smooth.
        prefix_tokens: Number of rows before the grid.

    Returns:
        A float32 NumPy array (1, prefix_tokens + target h * w, D), without the leading 1 if `table` has none.

    Raises:
        ValueError: `resample` is unknown or the table does not have the rows that `source` implies.
    """
    if resample not in RESAMPLINGS:
        raise ValueError(f"`resample` must be one of {', '.join(RESAMPLINGS)}. Received: {resample!r}")
    table = np.asarray(table, "float64")
    rows, expected = table.shape[-2], prefix_tokens + source[0] * source[1]
    if rows != expected:
        raise ValueError(
            f"A table for a grid of {tuple(source)} patches and {prefix_tokens} prefix tokens has {expected} rows. "
            f"Received: {rows} rows, shape {table.shape}"
        )
    prefix, patches = np.split(table, [prefix_tokens], axis=-2)
    if tuple(source) != tuple(target):
        grid = patches.reshape(*source, -1)  # (h, w, D)
        rows, columns = (interpolation_matrix(old, new, resample) for old, new in zip(source, target))
        grid = np.einsum("ih,jw,hwd->ijd", rows, columns, grid, optimize=True)  # (h', w', D)
        patches = grid.reshape(*table.shape[:-2], -1, table.shape[-1])  # ([1,] h' * w', D)
    return np.concatenate([prefix, patches], axis=-2).astype("float32")


def interpolation_matrix(old: int, new: int, resample: str) -> np.ndarray:
    """The matrix (new, old) that maps `old` samples on a line to `new` ones."""
    if resample == "bicubic_antialias":
        return _antialiased(old, new)
    if resample == "corners":
        centers: np.ndarray = np.linspace(0.0, old - 1.0, new)
    else:
        length = float(new + OFFSET if resample == "bicubic_offset" else new)
        centers = (np.arange(new) + 0.5) * old / length - 0.5
    kernel, reach = (_cubic, 2) if resample.startswith("bicubic") else (_linear, 1)
    matrix = np.zeros((new, old))
    for offset in range(1 - reach, reach + 1):
        neighbors = np.floor(centers).astype(int) + offset
        # Neighbors beyond the border take the border's sample.
        np.add.at(matrix, (np.arange(new), neighbors.clip(0, old - 1)), kernel(np.abs(centers - neighbors)))
    return matrix


def _antialiased(old, new):
    """Like `interpolation_matrix`, with a kernel as wide as the new samples are apart and rows that sum to 1."""
    scale = old / new
    places = (np.arange(old) + 0.5 - (np.arange(new)[:, None] + 0.5) * scale) / max(scale, 1.0)  # (new, old)
    matrix = _cubic(np.abs(places), a=-0.5)
    return matrix / matrix.sum(axis=1, keepdims=True)


def _linear(distance):
    return np.maximum(0.0, 1.0 - distance)


def _cubic(distance, a=-0.75):
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), equation 15, a as in PyTorch."""
    near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def by_distance(table):
    """The embedding of each pair of positions: (2 L - 1, c) -> (L, L, c), at (o, p) the row p - o + L - 1.

    A gather's gradient is sparse, which optimizers treat separately and a TPU sums slowly. Instead, the table with an
    unused row at its end is repeated and read with a period that is one row shorter: each line starts one row earlier.
    """
    length, width = (table.shape[0] + 1) // 2, table.shape[1]
    repeated = ops.tile(ops.pad(table, ((0, 1), (0, 0))), (length, 1))  # (L * 2*L, c)
    step = 2 * length - 1
    lines = ops.reshape(repeated[length - 1 : length - 1 + length * step], (length, step, width))
    return lines[:, :length]  # (L, L, c)


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


def check_width(width, divisor, kind):
    """Raises a ValueError unless the divisor divides the width."""
    if width % divisor:
        raise ValueError(
            f"{kind} positions require a width that is a multiple of {divisor}. Received: width={width}. "
            f"Use {width // divisor * divisor + divisor} or another position embedding."
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding2D(_Positions):
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


@keras.saving.register_keras_serializable(package="keras_vit")
class SinCosPositions(_Positions):
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

    def build(self, input_shape):
        check_tokens(input_shape, self.grid, self.prefix_tokens)
        width = input_shape[2]
        check_width(width, 4, "Sine and cosine")
        frequencies = self.TEMPERATURE ** -np.linspace(0.0, 1.0, width // 4)  # (D / 4,)
        y, x = (axis.reshape(-1, 1) * frequencies for axis in np.mgrid[: self.grid[0], : self.grid[1]])  # (h*w, D / 4)
        patches = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)  # (h*w, D)
        self.table = np.pad(patches, ((self.prefix_tokens, 0), (0, 0)))[None].astype("float32")  # (1, N, D)
