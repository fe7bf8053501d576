"""Attention along the rows, then the columns of the patch grid.

B batch, N tokens, P prefix tokens, D width, K heads, h w patch grid; L lines (h rows or w columns) of S tokens each.
"""

from dataclasses import asdict

import keras
import numpy as np
from keras import ops

from keras_vit.layers.block import EncoderBlock
from keras_vit.layers.config import BlockConfig, fields_as_keywords
from keras_vit.layers.heads import spec_with_attention
from keras_vit.layers.positions import check_grid, check_tokens

# Distance between the seeds of the row's and the column's block.
SEEDS_PER_DIRECTION = 8


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialBlock(keras.layers.Layer):
    """The block of Axial-ViT (the paper's appendix D.6): row self-attention and MLP, column self-attention and MLP.

    Each half, `row` and `column`, is an `EncoderBlock` whose sequences are the lines of the patch grid. With a second
    MLP and second projections it costs more than one `EncoderBlock` until the grid has about 6 D patches.

    The paper does not specify the class token. Here a prefix token is added to the sequence of every row, and the mean
    of its outputs over the rows goes to the columns, where the same is done. With stochastic depth, branches are drawn
    independently for each row and each column of an image.

    Input: (B, P + h * w, D), patches row by row. Output: (B, P + h * w, D), and with `return_attention=True` attention
    weights (B, K, N, N) through both halves: for each head of the column, its attention times the row's attention
    averaged over heads, because the columns read tokens in which the row's heads are already mixed. Rows sum to 1. The
    row of a prefix token is the mean of its rows over all lines.

    Args:
        grid: (h, w), rows and columns of patches.
        prefix_tokens: Number of tokens before the patches, P: 1 with a class token.
        config: A `BlockConfig`, or its fields as keyword arguments; both halves share it, with different seeds.
        stochastic_depth, remat: See `EncoderBlock`.
        seed: Seed of all dropout in the block.

    Raises:
        ValueError: `grid` is not two positive integers; the input has a different number of tokens (when built); see
            also `EncoderBlock`.
    """

    @fields_as_keywords(BlockConfig)
    def __init__(
        self,
        grid,
        prefix_tokens=0,
        *,
        config: BlockConfig,
        stochastic_depth=0.0,
        remat=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = config
        self.grid = check_grid(grid)
        self.prefix_tokens = prefix_tokens
        options = {"stochastic_depth": stochastic_depth, "remat": remat, "dtype": self.dtype_policy}
        column_seed = None if seed is None else seed + SEEDS_PER_DIRECTION
        self.row = EncoderBlock(config=config, seed=seed, name="row", **options)
        self.column = EncoderBlock(config=config, seed=column_seed, name="column", **options)

    def build(self, input_shape):
        h, w = self.grid
        check_tokens(input_shape, self.grid, self.prefix_tokens)
        self.row.build((None, self.prefix_tokens + w, input_shape[2]))
        self.column.build((None, self.prefix_tokens + h, input_shape[2]))

    def call(self, tokens, training=None, return_attention=False):
        if not return_attention:  # so that the halves may recompute and omit the attention weights
            for half, along_columns in ((self.row, False), (self.column, True)):
                lines = half(self._split(tokens, along_columns), training=training)  # (B*L, S, D)
                tokens = self._join(lines, along_columns)  # (B, N, D)
            return tokens
        options = {"training": training, "return_attention": True}
        lines, rows = self.row(self._split(tokens, along_columns=False), **options)  # (B*h, P + w, D)
        tokens = self._join(lines, along_columns=False)  # (B, N, D)
        lines, columns = self.column(self._split(tokens, along_columns=True), **options)  # (B*w, P + h, D)
        tokens = self._join(lines, along_columns=True)  # (B, N, D)
        rows = ops.mean(self._over_all_tokens(rows, along_columns=False), axis=1, keepdims=True)  # (B, 1, N, N)
        return tokens, ops.matmul(self._over_all_tokens(columns, along_columns=True), rows)  # (B, K, N, N)

    def _split(self, tokens, along_columns):
        """(B, N, D) -> (B * L, S, D): one sequence per line, with the prefix tokens at its front."""
        prefix, patches = tokens[:, : self.prefix_tokens], tokens[:, self.prefix_tokens :]
        lines = ops.reshape(patches, (-1, *self.grid, tokens.shape[2]))  # (B, h, w, D)
        if along_columns:
            lines = ops.transpose(lines, (0, 2, 1, 3))  # (B, w, h, D)
        if self.prefix_tokens:
            prefix = ops.tile(prefix[:, None], (1, lines.shape[1], 1, 1))  # (B, L, P, D)
            lines = ops.concatenate([prefix, lines], axis=2)  # (B, L, S, D)
        return ops.reshape(lines, (-1, *lines.shape[2:]))  # (B*L, S, D)

    def _join(self, lines, along_columns):
        """The inverse of `_split`: (B * L, S, D) -> (B, N, D), prefix tokens averaged over the lines."""
        count = self.grid[1] if along_columns else self.grid[0]
        lines = ops.reshape(lines, (-1, count, *lines.shape[1:]))  # (B, L, S, D)
        prefix, patches = lines[:, :, : self.prefix_tokens], lines[:, :, self.prefix_tokens :]
        if along_columns:
            patches = ops.transpose(patches, (0, 2, 1, 3))  # (B, h, w, D)
        tokens = ops.reshape(patches, (-1, self.grid[0] * self.grid[1], lines.shape[3]))  # (B, h*w, D)
        if self.prefix_tokens:
            tokens = ops.concatenate([ops.mean(prefix, axis=1), tokens], axis=1)  # (B, N, D)
        return tokens

    def _over_all_tokens(self, weights, along_columns):
        """Attention on the lines (B * L, K, S, S) as a sparse matrix over all tokens, (B, K, N, N)."""
        places = line_places(self.grid, self.prefix_tokens, along_columns)  # (L, S, N)
        lines, length, tokens = places.shape
        fractions = (places / places.sum(axis=(0, 1))).reshape(lines * length, tokens).T  # (N, L*S)
        weights = ops.reshape(weights, (-1, lines, *weights.shape[1:]))  # (B, L, K, S, S)
        spread = ops.einsum("blkij,ljn->bklin", weights, ops.cast(places, weights.dtype))  # (B, K, L, S, N)
        spread = ops.reshape(spread, (-1, weights.shape[2], lines * length, tokens))  # (B, K, L*S, N)
        return ops.matmul(ops.cast(fractions, weights.dtype), spread)  # (B, K, N, N)

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, tokens, training=None, return_attention=False):
        return spec_with_attention(self, tokens, (self.config.num_heads,), return_attention)

    def get_config(self):
        row = self.row  # its seed is the block's
        own = {"stochastic_depth": row.stochastic_depth, "remat": row.remat, "seed": row.seed}
        grid = {"grid": self.grid, "prefix_tokens": self.prefix_tokens}
        return {**super().get_config(), **grid, **asdict(self.config), **own}


def line_places(grid, prefix_tokens, along_columns):
    """Which token is where: (L, S, N) float32, 1 where position s of line l is token n, else 0."""
    h, w = grid
    patches = prefix_tokens + np.arange(h * w).reshape(h, w)  # (h, w)
    patches = patches.T if along_columns else patches  # (L, S - P)
    prefix = np.tile(np.arange(prefix_tokens), (len(patches), 1))  # (L, P)
    tokens = np.concatenate([prefix, patches], axis=1).astype(int)  # (L, S)
    return np.eye(prefix_tokens + h * w, dtype="float32")[tokens]  # (L, S, N)
