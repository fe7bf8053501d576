"""The layers of all ResNets here: convolution with a standardized kernel, and group normalization.

B batch, H W pixels, h w map, C channels, F filters, G groups.
"""

from functools import partial

import keras
from keras import ops

from keras_vit.layers.xla.island import can_compile_island, island, sums_by_product
from keras_vit.layers.xla.recompute import custom_gradient

EPSILON_PLACES = ("deviation", "variance")
# Lower bound under the square root: a filter of equal weights has variance 0, where the root's gradient is infinite.
SMALLEST_VARIANCE = 1e-30


@keras.saving.register_keras_serializable(package="keras_vit")
class StandardizedConv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D` with weight standardization: before each use, every filter of the kernel is scaled to mean
    0 and deviation 1 ("Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", arXiv
    1903.10520).

    The variable holds the kernel before standardization; gradients flow through it. Statistics over height, width and
    input channels are in at least float32. By default there is no bias, because a normalization follows, and the
    initial kernel is LeCun normal, as in Flax.

    Input: (B, H, W, C). Output: (B, h, w, F).

    Args:
        filters, kernel_size: See `keras.layers.Conv2D`.
        epsilon: Keeps the quotient finite.
        epsilon_on: "deviation" for (k - mean) / (deviation + epsilon), as the paper's code and big_vision's ResNet v1;
            "variance" for (k - mean) / sqrt(variance + epsilon), as in BiT with epsilon 1e-10.
        **kwargs: Arguments of `keras.layers.Conv2D`: strides, padding, ...

    Raises:
        ValueError: Unknown `epsilon_on`.
    """

    def __init__(
        self,
        filters,
        kernel_size,
        epsilon=1e-5,
        epsilon_on="deviation",
        use_bias=False,
        kernel_initializer="lecun_normal",
        data_format="channels_last",
        **kwargs,
    ):
        super().__init__(
            filters,
            kernel_size,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            data_format=data_format,
            **kwargs,
        )
        if epsilon_on not in EPSILON_PLACES:
            raise ValueError(f"`epsilon_on` must be 'deviation' or 'variance'. Received: {epsilon_on!r}")
        self.epsilon = epsilon
        self.epsilon_on = epsilon_on

    def add_weight(self, *args, **kwargs):
        # Mixed precision would round the kernel before its statistics are computed; `convolution_op` casts it.
        return super().add_weight(*args, **{**kwargs, "autocast": kwargs.get("name") != "kernel"})

    def convolution_op(self, inputs, kernel):
        return super().convolution_op(inputs, ops.cast(self.standardize(kernel), inputs.dtype))

    def standardize(self, kernel):
        """The kernel that the convolution uses: (height, width, C, F) -> the same shape, at least float32."""
        kernel = ops.cast(kernel, keras.backend.result_type(kernel.dtype, "float32"))
        centered = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(centered), axis=(0, 1, 2), keepdims=True)  # (1, 1, 1, F)
        if self.epsilon_on == "variance":
            return centered / ops.sqrt(variance + self.epsilon)
        return centered / (ops.sqrt(ops.maximum(variance, SMALLEST_VARIANCE)) + self.epsilon)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon, "epsilon_on": self.epsilon_on}


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNorm(keras.layers.GroupNormalization):
    """`keras.layers.GroupNormalization` over the last axis whose training is faster on a CPU.

    Inference is Keras's. The gradient in training is explicit, see `group_norm_for_training`; the numbers are the same
    ("Group Normalization", arXiv 1803.08494, section 3). Statistics are computed in at least float32.

    Input: (B, H, W, C). Output: (B, H, W, C).

    Args:
        groups: G, divides C.
        epsilon: Added to the variance.

    Called with `relu=True`, the output is that of ReLU, which in training shares the loops of the normalization.
    """

    def __init__(self, groups, epsilon, **kwargs):
        super().__init__(groups, epsilon=epsilon, **kwargs)

    def call(self, inputs, training=None, relu=False):
        if training:
            output = group_norm_for_training(inputs, self.gamma, self.beta, self.groups, self.epsilon, relu)
            return ops.cast(output, self.compute_dtype)
        return ops.relu(super().call(inputs)) if relu else super().call(inputs)


def group_norm_for_training(x, gamma, beta, groups, epsilon, relu=False):
    """Group normalization, then ReLU if `relu`; the gradient reads the map less often than the derived one.

    With g the upstream gradient times gamma, n the normalized x and means over a group, the gradient of x is
    (g - mean(g) - n mean(g n)) / sigma; ReLU sets g to 0 where its input is not positive. `gamma` and `beta` are (C,).

    Returns: (B, H, W, C) with the dtype of x.
    """
    precise, compiled = keras.backend.result_type(x.dtype, "float32"), can_compile_island()

    @custom_gradient
    def norm(x, gamma, beta):
        if compiled:
            output, mean, factor = island(_output)(x, gamma, beta, groups, epsilon, relu)
            return output, partial(island(_gradient_of_output), x, mean, factor, gamma, beta, groups, relu)
        output, centered, _, factor = _normalize(x, gamma, beta, groups, epsilon)
        return ops.cast(output, x.dtype), partial(_gradient, centered, factor, gamma, groups, x.dtype, _sums)

    output = norm(x, ops.cast(gamma, precise), ops.cast(beta, precise))
    return ops.relu(output) if relu and not compiled else output


def _normalize(x, gamma, beta, groups, epsilon):
    """The output and the centered x, (B, H, W, C); for each channel the mean and 1 / sigma of its group, (B, C)."""
    wide = ops.cast(x, gamma.dtype)
    mean = _of_groups(ops.mean(wide, axis=(1, 2)), groups)
    centered = wide - mean[:, None, None]
    variance = _of_groups(ops.mean(ops.square(centered), axis=(1, 2)), groups)
    factor = ops.rsqrt(variance + epsilon)
    return centered * (factor * gamma)[:, None, None] + beta, centered, mean, factor


def _gradient(centered, factor, gamma, groups, dtype, sums, upstream):
    """Gradients for x, gamma and beta; `sums` computes the sums over the pixels."""
    upstream = ops.cast(upstream, gamma.dtype)
    pixels = ops.cast(ops.shape(centered)[1] * ops.shape(centered)[2], gamma.dtype)
    total = sums(upstream)  # (B, C)
    slope = sums(upstream * centered) * factor  # (B, C)
    shift = factor * _of_groups(total * gamma, groups) / pixels  # (B, C)
    decrease = ops.square(factor) * _of_groups(slope * gamma, groups) / pixels  # (B, C)
    linear = centered * decrease[:, None, None] + shift[:, None, None]
    for_x = upstream * (factor * gamma)[:, None, None] - linear
    return ops.cast(for_x, dtype), ops.sum(slope, axis=0), ops.sum(total, axis=0)


def _output(x, gamma, beta, groups, epsilon, relu):
    """For an island: the output, then ReLU if `relu`; the mean and 1 / sigma."""
    output, _, mean, factor = _normalize(x, gamma, beta, groups, epsilon)
    return ops.cast(ops.relu(output) if relu else output, x.dtype), mean, factor


def _gradient_of_output(x, mean, factor, gamma, beta, groups, relu, upstream):
    """The gradients of `_output`, which read x again instead of the larger centered x."""
    centered, upstream = ops.cast(x, gamma.dtype) - mean[:, None, None], ops.cast(upstream, gamma.dtype)
    if relu:
        upstream = ops.where(centered * (factor * gamma)[:, None, None] + beta > 0, upstream, 0.0)
    return _gradient(centered, factor, gamma, groups, x.dtype, sums_by_product, upstream)


def _sums(maps):
    """(B, H, W, C) -> (B, C)."""
    return ops.sum(maps, axis=(1, 2))


def _of_groups(values, groups):
    """The mean of each group, for each of its channels: (B, C) -> (B, C)."""
    members = values.shape[-1] // groups
    means = ops.mean(ops.reshape(values, (-1, groups, members)), axis=-1)  # (B, G)
    return ops.repeat(means, members, axis=-1)  # (B, C)
