"""The ResNets of hybrids: that of BiT, too, and one for small images, such as CIFAR's.

B batch, H W pixels, h w feature map, C channels, F filters.
"""

from functools import partial

import keras
from keras import ops

from keras_vit.layers.composite import Composite
from keras_vit.layers.resnet.bottleneck import (
    EXPANSION,
    GROUPS,
    Bottleneck,
    PreActivationBottleneck,
    ResNetUnit,
    build_for,
    check_form,
    checked_stages,
    convolution,
    group_norm,
    padded,
    shrunk,
)
from keras_vit.layers.resnet.standardized_conv import GroupNorm, StandardizedConv2D
from keras_vit.variants import ROOT_STRIDE

ROOT_FILTERS = 64
# Padding before the root's pooling in form "paper": zeros, or copies of the border, which do not change a maximum.
POOL_PADDINGS = {"zeros": "constant", "edge": "symmetric"}


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetRoot(Composite):
    """A 7 x 7 convolution with stride 2, in form v1 with normalization and ReLU, then 3 x 3 max pooling with stride 2.

    Input: (B, H, W, C) float, in [-1, 1] for published weights. Output: (B, h, w, filters), a quarter of the rows and
        columns, rounded up.

    Args:
        filters: A multiple of 32.
        form, pool_padding: See `ResNetBackbone`.
    """

    def __init__(self, filters, form="v1", pool_padding="zeros", **kwargs):
        super().__init__(**kwargs)
        check_form(form)
        if pool_padding not in POOL_PADDINGS:
            raise ValueError(f"`pool_padding` must be one of {', '.join(POOL_PADDINGS)}. Received: {pool_padding!r}")
        self.filters = filters
        self.form = form
        self.pool_padding = pool_padding
        self.conv_root = convolution(form, filters, 7, 2, "conv_root", self.dtype_policy)
        self.gn_root = group_norm(form, "gn_root", self.dtype_policy) if form != "paper" else None

    def build(self, input_shape):
        build_for(input_shape[-1], self.conv_root)
        if self.gn_root:
            build_for(self.filters, self.gn_root)

    def call(self, images):
        if self.form != "paper":
            maps = self.gn_root(self.conv_root(images), relu=True)  # (B, H/2, W/2, filters)
            return ops.max_pool(maps, 3, 2, padding="same", data_format="channels_last")  # (B, h, w, filters)
        maps = self.conv_root(padded(images, 3))  # (B, H/2, W/2, filters)
        # Padded by 2, then cropped: onnxruntime up to 1.31 merges padding by zeros with the pooling right after it, as
        # if it were by -inf (onnxruntime, issue 24737).
        maps = padded(maps, 2, POOL_PADDINGS[self.pool_padding])[:, 1:-1, 1:-1]
        return ops.max_pool(maps, 3, 2, padding="valid", data_format="channels_last")  # (B, h, w, filters)

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        return (batch, shrunk(height, ROOT_STRIDE), shrunk(width, ROOT_STRIDE), self.filters)

    def get_config(self):
        config = {"filters": self.filters, "form": self.form, "pool_padding": self.pool_padding}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetStage(Composite):
    """A sequence of units, the first with the stride: `Bottleneck` in form v1, `PreActivationBottleneck` in "paper".

    Input: (B, H, W, C). Output: (B, h, w, 4 filters).
    """

    def __init__(self, depth, filters, stride=1, form="v1", **kwargs):
        super().__init__(**kwargs)
        self.depth = depth
        self.filters = filters
        self.stride = stride
        self.form = form
        unit = PreActivationBottleneck if form == "paper" else partial(Bottleneck, form=form)
        self.units = [
            unit(filters, stride if i == 0 else 1, dtype=self.dtype_policy, name=f"unit{i + 1}") for i in range(depth)
        ]

    def build(self, input_shape):
        for unit in self.units:
            unit.build(input_shape)
            input_shape = unit.compute_output_shape(input_shape)

    def call(self, maps):
        for unit in self.units:
            maps = unit(maps)
        return maps  # (B, h, w, 4 filters)

    def compute_output_shape(self, input_shape):
        return self.units[0].compute_output_shape(input_shape)

    def get_config(self):
        names = ("depth", "filters", "stride", "form")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetBackbone(Composite):
    """Root and stages of a ResNet with standardized convolutions and group normalization.

    In a hybrid (section 3.1 of the paper; google-research/vision_transformer, models_vit.py) its feature map replaces
    the image. The first stage keeps the root's stride of 4, each further one halves the map.

    Input: (B, H, W, 3) float, in [-1, 1] for published weights; any size. Output: (B, h, w, C), with h and w as H and W
        divided by `total_stride`, rounded up; C is 256 times the width factor, doubled by each stage after the first,
        or 64 times it without stages.

    Args:
        stages: Number of units in each stage: (3, 4, 9) for the hybrids on R50 with stride 16, (3, 4, 6, 3) or
            (2, 2, 2, 2) with stride 32. Empty for the root only, as R + ViT-Ti/16.
        width_factor: Multiplies all channels; 64 times it must be a multiple of 32, the number of groups.
        form: "v1", normalized after each convolution and padded as TensorFlow's "same" (hybrids; big_vision's
            models/bit.py), "timm", the same with the epsilons of timm's hybrids, or "paper", normalized before and
            padded equally on both sides, as in the published BiT models. The map of form "paper" still requires
            normalization and ReLU, which `BiT` adds.
        pool_padding: Padding before the root's max pooling in form "paper": "zeros" in the code of its authors
            (google-research/big_transfer), "edge" (copies of the border) in big_vision's models/bit_paper.py. In form
            v1 the pooled numbers are not negative, so that both are equal.

    Attributes:
        total_stride: Distance in pixels of neighboring positions of the feature map.

    Raises:
        ValueError: Stages without units, channels that 32 groups do not divide, an unknown `form` or `pool_padding`.
    """

    def __init__(self, stages=(3, 4, 9), width_factor=1, form="v1", pool_padding="zeros", **kwargs):
        super().__init__(**kwargs)
        filters = ROOT_FILTERS * width_factor
        if filters < GROUPS or filters % GROUPS:
            raise ValueError(
                f"A ResNet of width_factor={width_factor} has {filters:g} filters in its root, which {GROUPS} groups "
                "do not divide. Use a multiple of 0.5."
            )
        filters = int(filters)
        self.stages = checked_stages(stages)
        self.width_factor = width_factor
        self.form = form
        self.pool_padding = pool_padding
        self.total_stride = ROOT_STRIDE * 2 ** max(len(self.stages) - 1, 0)
        self.channels = EXPANSION * filters * 2 ** (len(self.stages) - 1) if self.stages else filters
        self.root = ResNetRoot(filters, form, pool_padding, dtype=self.dtype_policy, name="root")
        self.blocks = [
            ResNetStage(units, filters * 2**i, 1 if i == 0 else 2, form, dtype=self.dtype_policy, name=f"block{i + 1}")
            for i, units in enumerate(self.stages)
        ]

    def build(self, input_shape):
        for layer in (self.root, *self.blocks):
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)

    def call(self, images):
        maps = self.root(images)  # (B, H/4, W/4, C)
        for block in self.blocks:
            maps = block(maps)
        return maps  # (B, h, w, C)

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        return (batch, shrunk(height, self.total_stride), shrunk(width, self.total_stride), self.channels)

    def get_config(self):
        names = ("stages", "width_factor", "form", "pool_padding")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


SMALL_GROUPS = 16  # in the ResNet for small images


def _small_convolution(filters, size, stride, name, dtype):
    return StandardizedConv2D(filters, size, strides=stride, padding="same", dtype=dtype, name=name)


def _small_group_norm(name, dtype):
    return GroupNorm(SMALL_GROUPS, 1e-5, dtype=dtype, name=name)


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
        self.gn1 = _small_group_norm("gn1", dtype)
        self.conv1 = _small_convolution(self.filters, 3, self.stride, "conv1", dtype)
        self.gn2 = _small_group_norm("gn2", dtype)
        self.conv2 = _small_convolution(self.filters, 3, 1, "conv2", dtype)
        self.conv_proj = None
        if channels != self.filters or self.stride != 1:
            self.conv_proj = _small_convolution(self.filters, 1, self.stride, "conv_proj", dtype)
            build_for(channels, self.conv_proj)
        build_for(channels, self.gn1, self.conv1)
        build_for(self.filters, self.gn2, self.conv2)

    def call(self, maps):
        branch = self.gn1(maps, relu=True)  # (B, H, W, C)
        shortcut = self.conv_proj(branch) if self.conv_proj else maps  # (B, h, w, F)
        return shortcut + self.conv2(self.gn2(self.conv1(branch), relu=True))  # (B, h, w, F)


@keras.saving.register_keras_serializable(package="keras_vit")
class SmallImageResNet(Composite):
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
        self.conv_root = _small_convolution(ROOT_FILTERS, 3, 1, "conv_root", dtype)
        self.units = [
            PreActivationUnit(ROOT_FILTERS * 2**stage, 2 if unit == 1 else 1, dtype=dtype, name=f"block{stage}_{unit}")
            for stage, units in enumerate(self.stages, start=1)
            for unit in range(1, units + 1)
        ]
        self.norm = _small_group_norm("norm", dtype)

    def build(self, input_shape):
        for layer in (self.conv_root, *self.units, self.norm):
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)

    def call(self, images):
        maps = self.conv_root(images)  # (B, H, W, 64)
        for unit in self.units:
            maps = unit(maps)
        return self.norm(maps, relu=True)  # (B, h, w, C)

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        return (batch, shrunk(height, self.total_stride), shrunk(width, self.total_stride), self.channels)

    def get_config(self):
        return {**super().get_config(), "stages": self.stages}
