"""Self-attention along one axis of a feature map. B batch, H W map, C channels, L length of the axis, K heads, d C / K.

n lines: all columns of a batch for attention along the height, all rows along the width.
"""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.resnet.bottleneck import GROUPS

AXES = ("height", "width")


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialAttention(keras.layers.Layer):
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


def check_channels(channels, num_heads):
    """Raises a ValueError unless 32 groups and `num_heads` heads of an even width divide the channels."""
    if num_heads < 1 or channels % GROUPS or channels % (2 * num_heads):
        step = int(np.lcm(GROUPS, 2 * max(num_heads, 1)))
        raise ValueError(
            f"Axial attention requires channels that are a multiple of {GROUPS} (groups of the normalization) and of "
            f"2 * num_heads. Received: {channels:g} channels, num_heads={num_heads}. Use a multiple of {step} channels."
        )
