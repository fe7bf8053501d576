"""Convolution with a standardized kernel. B batch, H W pixels, h w map, C channels, F filters."""

import keras
from keras import ops

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
