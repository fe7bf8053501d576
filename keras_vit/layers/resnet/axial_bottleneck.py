"""The ResNet unit with axial attention. B batch, H W feature map, h w feature map after the stride, F filters."""

import keras
from keras import ops

from keras_vit.layers.axial_attention import AxialAttention
from keras_vit.layers.resnet.bottleneck import EXPANSION, GROUPS, shrunk
from keras_vit.layers.resnet.group_norm import GroupNorm
from keras_vit.layers.resnet.standardized_conv import StandardizedConv2D

EPSILON = 1e-4


def convolution(filters, size, stride, name, dtype):
    """A convolution standardized as in BiT, with TensorFlow's padding "same"."""
    options = {"strides": stride, "padding": "same", "dtype": dtype, "name": name}
    return StandardizedConv2D(filters, size, 1e-10, "variance", **options)


def group_norm(name, dtype, gamma="ones"):
    return GroupNorm(GROUPS, EPSILON, gamma_initializer=gamma, dtype=dtype, name=name)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialBottleneck(keras.layers.Layer):
    """A ResNet bottleneck whose 3 x 3 convolution is `AxialAttention` along the height, then along the width.

    relu(shortcut(x) + gn3(conv3(relu(pool(attention(relu(gn1(conv1(x))))))))), where pool averages 2 x 2 if the stride
    is 2. The shortcut is a strided 1 x 1 convolution with normalization where the shape changes. The last scale is
    initially zero, so a new unit is relu of its shortcut.

    Input: (B, H, W, C). Output: (B, h, w, 4 F), not negative.

    Args:
        filters: Channels of the attention, F.
        stride: 1 or 2.
        num_heads: See `AxialAttention`.
    """

    def __init__(self, filters, stride=1, num_heads=8, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.stride = stride
        self.num_heads = num_heads

    def build(self, input_shape):
        dtype, output = self.dtype_policy, self.compute_output_shape(input_shape)
        inner, strided = (*input_shape[:3], self.filters), (*output[:3], self.filters)
        self.conv_proj = self.gn_proj = None
        if output != tuple(input_shape):
            self.conv_proj = convolution(output[3], 1, self.stride, "conv_proj", dtype)
            self.gn_proj = group_norm("gn_proj", dtype)
            self.conv_proj.build(input_shape)
            self.gn_proj.build(output)
        self.conv1 = convolution(self.filters, 1, 1, "conv1", dtype)
        self.gn1 = group_norm("gn1", dtype)
        self.attention_height = AxialAttention("height", self.num_heads, EPSILON, dtype=dtype, name="attention_height")
        self.attention_width = AxialAttention("width", self.num_heads, EPSILON, dtype=dtype, name="attention_width")
        self.conv3 = convolution(output[3], 1, 1, "conv3", dtype)
        self.gn3 = group_norm("gn3", dtype, gamma="zeros")
        for layer, shape in (
            (self.conv1, input_shape),
            (self.gn1, inner),
            (self.attention_height, inner),
            (self.attention_width, inner),
            (self.conv3, strided),
            (self.gn3, output),
        ):
            layer.build(shape)

    def call(self, maps):
        shortcut = self.gn_proj(self.conv_proj(maps)) if self.conv_proj else maps  # (B, h, w, 4F)
        branch = ops.relu(self.gn1(self.conv1(maps)))  # (B, H, W, F)
        branch = self.attention_width(self.attention_height(branch))  # (B, H, W, F)
        if self.stride > 1:
            options = {"strides": self.stride, "padding": "same", "data_format": "channels_last"}
            branch = ops.average_pool(branch, self.stride, **options)  # (B, h, w, F)
        return ops.relu(shortcut + self.gn3(self.conv3(ops.relu(branch))))  # (B, h, w, 4F)

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        return (batch, shrunk(height, self.stride), shrunk(width, self.stride), EXPANSION * self.filters)

    def get_config(self):
        config = {"filters": self.filters, "stride": self.stride, "num_heads": self.num_heads}
        return {**super().get_config(), **config}
