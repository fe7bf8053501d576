"""The ResNet of hybrids and, with a head, of BiT. B batch, H W pixels, h w feature map, C channels."""

from functools import partial

import keras
from keras import ops

from keras_vit.layers.resnet.bottleneck import (
    EXPANSION,
    GROUPS,
    Bottleneck,
    PreActivationBottleneck,
    build_for,
    check_form,
    checked_stages,
    convolution,
    group_norm,
    padded,
    shrunk,
)
from keras_vit.variants import ROOT_STRIDE

ROOT_FILTERS = 64
# Padding before the root's pooling in form "paper": zeros, or copies of the border, which do not change a maximum.
POOL_PADDINGS = {"zeros": "constant", "edge": "symmetric"}


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetRoot(keras.layers.Layer):
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
            maps = ops.relu(self.gn_root(self.conv_root(images)))  # (B, H/2, W/2, filters)
            return ops.max_pool(maps, 3, 2, padding="same", data_format="channels_last")  # (B, h, w, filters)
        maps = self.conv_root(padded(images, 3))  # (B, H/2, W/2, filters)
        maps = padded(maps, 1, POOL_PADDINGS[self.pool_padding])
        return ops.max_pool(maps, 3, 2, padding="valid", data_format="channels_last")  # (B, h, w, filters)

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        return (batch, shrunk(height, ROOT_STRIDE), shrunk(width, ROOT_STRIDE), self.filters)

    def get_config(self):
        config = {"filters": self.filters, "form": self.form, "pool_padding": self.pool_padding}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetStage(keras.layers.Layer):
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
class ResNetBackbone(keras.layers.Layer):
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
