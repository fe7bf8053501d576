"""Axial attention along one axis of a feature map, and the block of Axial-ViT for the tokens of a patch grid.

Feature maps: B batch, H W map, C channels, L length of the axis, K heads, d C / K; n lines: all columns of a batch for
attention along the height, all rows along the width. Tokens: N tokens, P prefix tokens, D width, h w patch grid; L
lines (h rows or w columns) of S tokens each.
"""

from dataclasses import asdict

import keras
import numpy as np
from keras import ops

from keras_vit.layers.block import EncoderBlock
from keras_vit.layers.composite import Composite
from keras_vit.layers.config import BlockConfig, fields_as_keywords
from keras_vit.layers.heads import spec_with_attention
from keras_vit.layers.positions import by_distance, check_grid, check_tokens
from keras_vit.layers.resnet.bottleneck import GROUPS

AXES = ("height", "width")


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialAttention(Composite):
    """The position-sensitive axial attention of "Axial-DeepLab" (arXiv 2003.07853), equation 4, on lines of any length.

        y_o = sum_p softmax_p(q_o . k_p + q_o . r^q_(p-o) + k_p . r^k_(p-o)) (v_p + r^v_(p-o))

    Queries and keys are half as wide as values; the embeddings r of the 2 L - 1 distances are learnable, one table for
    all heads. There are no biases and no factor 1 / sqrt(d): normalization keeps the logits in range.

    Normalization as in scenic's axial_resnet.py, which suits a TPU: group normalization with 32 groups, epsilon 1e-4
    and statistics per line, of queries, keys and values together and of the output. (csrhddlam/axial-deeplab, PyTorch,
    has batch normalization instead, of the three logits and of the output's two terms.) Scenic uses k_o in the third
    logit; here it is k_p, as in the equation and in axial-deeplab. Initial values as in scenic: normal with standard
    deviations 1 / C (kernel) and 1 / d (embeddings). Under mixed precision softmax and statistics are in float32.

    Input: (B, H, W, C). Output: the same shape.

    Args:
        axis: "height" (each column attends within itself) or "width" (each row).
        num_heads: Number of heads, K.
        epsilon: Epsilon of the group normalizations.

    Raises:
        ValueError: Unknown axis; channels that are not a multiple of 32 and of 2 * num_heads, or a map of unknown
            height or width (when built).
    """

    def __init__(self, axis, num_heads=8, epsilon=1e-4, **kwargs):
        super().__init__(**kwargs)
        if axis not in AXES:
            raise ValueError(f"`axis` must be 'height' or 'width'. Received: {axis!r}")
        self.axis = axis
        self.num_heads = num_heads
        self.epsilon = epsilon
        options = {"groups": GROUPS, "axis": -1, "epsilon": epsilon, "dtype": self.dtype_policy}
        self.norm_qkv = keras.layers.GroupNormalization(**options, name="norm_qkv")
        self.norm_out = keras.layers.GroupNormalization(**options, name="norm_out")

    def build(self, input_shape):
        length, channels = input_shape[1 + AXES.index(self.axis)], input_shape[3]
        check_channels(channels, self.num_heads)
        if None in input_shape[1:3]:
            raise ValueError(
                "Axial attention has relative positions along one side of the map and lines along the other: both must "
                f"be known when it is built. Received input shape: {tuple(input_shape)}"
            )
        kernel = keras.initializers.RandomNormal(stddev=1 / channels)
        dense = {"use_bias": False, "kernel_initializer": kernel, "dtype": self.dtype_policy}
        self.qkv = keras.layers.Dense(2 * channels, **dense, name="qkv")
        self.qkv.build((None, length, channels))
        self.norm_qkv.build((None, length, 2 * channels))
        self.norm_out.build((None, length, channels))
        head_width = channels // self.num_heads
        self.relative = self.add_weight(
            shape=(2 * length - 1, 2 * head_width),
            initializer=keras.initializers.RandomNormal(stddev=1 / head_width),
            name="relative",
        )

    def call(self, maps):
        lines = ops.transpose(maps, (0, 2, 1, 3)) if self.axis == "height" else maps  # (B, W, H, C) or (B, H, W, C)
        outer, length, channels = lines.shape[1:]
        lines = ops.reshape(lines, (-1, length, channels))  # (n, L, C)
        lines = self.norm_out(self._attend_along_lines(self.norm_qkv(self.qkv(lines))))  # (n, L, C)
        lines = ops.reshape(lines, (-1, outer, length, channels))
        return ops.transpose(lines, (0, 2, 1, 3)) if self.axis == "height" else lines  # (B, H, W, C)

    def _attend_along_lines(self, qkv):
        """Equation 4: from queries, keys and values (n, L, 2 C), concatenated per head, to the output (n, L, C)."""
        length, head_width = qkv.shape[1], qkv.shape[2] // (2 * self.num_heads)
        ends = (head_width // 2, head_width)
        qkv = ops.reshape(qkv, (-1, length, self.num_heads, 2 * head_width))  # (n, L, K, 2*d)
        qkv = ops.transpose(qkv, (0, 2, 1, 3))  # (n, K, L, 2*d)
        query, key, value = ops.split(qkv, ends, axis=-1)  # (n, K, L, d/2) twice, (n, K, L, d)
        relative = by_distance(ops.cast(self.relative, qkv.dtype))  # (L, L, 2*d)
        for_query, for_key, for_value = ops.split(relative, ends, axis=-1)
        logits = (
            ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
            + ops.einsum("nkoc,opc->nkop", query, for_query)
            + ops.einsum("nkpc,opc->nkop", key, for_key)
        )  # (n, K, L, L)
        precise = ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
        weights = ops.cast(ops.softmax(precise, axis=-1), qkv.dtype)  # (n, K, L, L)
        mixed = ops.matmul(weights, value) + ops.einsum("nkop,opc->nkoc", weights, for_value)  # (n, K, L, d)
        return ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, length, self.num_heads * head_width))  # (n, L, C)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = {"axis": self.axis, "num_heads": self.num_heads, "epsilon": self.epsilon}
        return {**super().get_config(), **config}


def check_channels(channels, num_heads):
    """Raises a ValueError unless 32 groups and `num_heads` heads of an even width divide the channels."""
    if num_heads < 1 or channels % GROUPS or channels % (2 * num_heads):
        step = int(np.lcm(GROUPS, 2 * max(num_heads, 1)))
        raise ValueError(
            f"Axial attention requires channels that are a multiple of {GROUPS} (groups of the normalization) and of "
            f"2 * num_heads. Received: {channels:g} channels, num_heads={num_heads}. Use a multiple of {step} channels."
        )


# Distance between the seeds of the row's and the column's block.
SEEDS_PER_DIRECTION = 8


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialBlock(Composite):
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
