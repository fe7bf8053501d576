"""The ResNet of hybrids for small images, such as CIFAR's. B batch, H W pixels, h w map, C channels, F filters."""

import keras
from keras import ops

from keras_vit.layers.resnet.bottleneck import ResNetUnit, build_for, checked_stages, shrunk
from keras_vit.layers.resnet.standardized_conv import GroupNorm, StandardizedConv2D

ROOT_FILTERS = 64
GROUPS = 16


def _convolution(filters, size, stride, name, dtype):
    return StandardizedConv2D(filters, size, strides=stride, padding="same", dtype=dtype, name=name)


def _group_norm(name, dtype):
    return GroupNorm(GROUPS, 1e-5, dtype=dtype, name=name)


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationUnit(ResNetUnit):
    """Two 3 x 3 convolutions, normalized before each: shortcut(x) + conv2(relu(gn2(conv1(relu(gn1(x)))))).

    The unit of "Identity Mappings in Deep Residual Networks" (arXiv 1603.05027, figure 4e) with standardized
    convolutions and group normalization. The shortcut is a strided 1 x 1 convolution of relu(gn1(x)) where the shape
    changes.

    Input: (B, H, W, C). Output: (B, h, w, F). 16 divides C and F.
    """

    expansion = 1

    def build(self, input_shape):
        dtype, channels = self.dtype_policy, input_shape[-1]
        self.gn1 = _group_norm("gn1", dtype)
        self.conv1 = _convolution(self.filters, 3, self.stride, "conv1", dtype)
        self.gn2 = _group_norm("gn2", dtype)
        self.conv2 = _convolution(self.filters, 3, 1, "conv2", dtype)
        self.conv_proj = None
        if channels != self.filters or self.stride != 1:
            self.conv_proj = _convolution(self.filters, 1, self.stride, "conv_proj", dtype)
            build_for(channels, self.conv_proj)
        build_for(channels, self.gn1, self.conv1)
        build_for(self.filters, self.gn2, self.conv2)

    def call(self, maps):
        branch = ops.relu(self.gn1(maps))  # (B, H, W, C)
        shortcut = self.conv_proj(branch) if self.conv_proj else maps  # (B, h, w, F)
        return shortcut + self.conv2(ops.relu(self.gn2(self.conv1(branch))))  # (B, h, w, F)


@keras.saving.register_keras_serializable(package="keras_vit")
class SmallImageResNet(keras.layers.Layer):
    """A 3 x 3 convolution at full resolution, stages of `PreActivationUnit`, each of which halves the map, gn and ReLU.

    `ResNetBackbone` would divide 32 x 32 pixels by 4 before its first unit. Here, as in ResNets for CIFAR, its root has
    neither stride nor pooling.

    Input: (B, H, W, 3) float; any size. Output: (B, h, w, C), not negative, with h and w as H and W divided by
        `total_stride`, rounded up; C is 128 after the first stage, doubled by each further one, or 64 without stages.

    Args:
        stages: Number of units in each stage, such as (1, 1) for a stride of 4; () for the root only.

    Attributes:
        total_stride: Distance in pixels of neighboring positions of the feature map.
        channels: C.

    Raises:
        ValueError: Stages without units.
    """

    def __init__(self, stages=(1, 1), **kwargs):
        super().__init__(**kwargs)
        dtype, self.stages = self.dtype_policy, checked_stages(stages)
        self.total_stride = 2 ** len(self.stages)
        self.channels = ROOT_FILTERS * self.total_stride
        self.conv_root = _convolution(ROOT_FILTERS, 3, 1, "conv_root", dtype)
        self.units = [
            PreActivationUnit(ROOT_FILTERS * 2**stage, 2 if unit == 1 else 1, dtype=dtype, name=f"block{stage}_{unit}")
            for stage, units in enumerate(self.stages, start=1)
            for unit in range(1, units + 1)
        ]
        self.norm = _group_norm("norm", dtype)

    def build(self, input_shape):
        for layer in (self.conv_root, *self.units, self.norm):
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)

    def call(self, images):
        maps = self.conv_root(images)  # (B, H, W, 64)
        for unit in self.units:
            maps = unit(maps)
        return ops.relu(self.norm(maps))  # (B, h, w, C)

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        return (batch, shrunk(height, self.total_stride), shrunk(width, self.total_stride), self.channels)

    def get_config(self):
        return {**super().get_config(), "stages": self.stages}
