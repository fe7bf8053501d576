"""The units of a ResNet. B batch, H W and h w feature map before and after the stride, C channels, F filters."""

import keras
from keras import ops

from keras_vit.images import is_integer
from keras_vit.layers.composite import Composite
from keras_vit.layers.config import python_integers
from keras_vit.layers.resnet.standardized_conv import GroupNorm, StandardizedConv2D

GROUPS = 32
EXPANSION = 4  # a unit's output has 4 times as many channels as its 3 x 3 convolution
FORMS = ("v1", "timm", "paper")


def check_form(form):
    """Raises a ValueError unless this is a known form of a ResNet."""
    if form not in FORMS:
        raise ValueError(f"`form` must be one of {', '.join(FORMS)}. Received: {form!r}")


def checked_stages(stages) -> tuple[int, ...]:
    """The number of units in each stage; raises a ValueError for anything else than positive integers."""
    if not isinstance(stages, (tuple, list)) or not all(map(is_integer, stages)):
        raise ValueError(
            "`stages` must be the number of units in each stage, such as (3, 4, 6, 3), or () for the root only. "
            f"Received: {stages!r}"
        )
    return python_integers(tuple(stages))


def group_norm(form, name, dtype, gamma="ones"):
    """Group normalization with 32 groups and the epsilon of each form's code; statistics are in float32."""
    epsilon = 1e-6 if form == "v1" else 1e-5  # timm loads the weights of v1 despite its other epsilon
    return GroupNorm(GROUPS, epsilon, gamma_initializer=gamma, dtype=dtype, name=name)


def convolution(form, filters, size, stride, name, dtype):
    """A standardized convolution with each form's epsilon and padding.

    v1 and timm use TensorFlow's padding "same", which with stride 2 may not pad before the first row. Form "paper" pads
    both sides equally (`padded`), which equals "same" with stride 1.
    """
    options = {"strides": stride, "dtype": dtype, "name": name}
    if form == "v1":
        return StandardizedConv2D(filters, size, padding="same", **options)
    if form == "timm":
        return StandardizedConv2D(filters, size, 1e-8, "variance", padding="same", **options)
    padding = "same" if stride == 1 else "valid"
    return StandardizedConv2D(filters, size, 1e-10, "variance", padding=padding, **options)


def build_for(channels, *layers):
    """Builds layers for feature maps of any size with this number of channels."""
    for layer in layers:
        layer.build((None, None, None, channels))


def padded(maps, rows, mode="constant"):
    """Pads all sides by the same number of rows: (B, H, W, C) -> (B, H + 2 rows, W + 2 rows, C)."""
    return ops.pad(maps, ((0, 0), (rows, rows), (rows, rows), (0, 0)), mode=mode)


def shrunk(size, stride):
    """Rows or columns after a stride, rounded up; None for None. Holds for the paddings of all forms."""
    return None if size is None else -(-size // stride)


class ResNetUnit(Composite):
    """What the units of all ResNets share: (B, H, W, C) -> (B, h, w, `expansion` F), H and W divided by the stride.

    Args:
        filters: F, filters of the 3 x 3 convolution.
        stride: 1 or 2.
    """

    expansion = EXPANSION

    def __init__(self, filters, stride=1, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.stride = stride

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        return (batch, shrunk(height, self.stride), shrunk(width, self.stride), self.expansion * self.filters)

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "stride": self.stride}


@keras.saving.register_keras_serializable(package="keras_vit")
class Bottleneck(ResNetUnit):
    """A unit of the ResNet in hybrids and in big_vision's BiT: relu(shortcut(x) + gn3(conv3(...))).

    The branch is 1 x 1, 3 x 3 with the stride, 1 x 1 convolution, each with group normalization, ReLU after the first
    two. The shortcut is a strided 1 x 1 convolution with normalization where the shape changes. The last scale is
    initially zero, so a new unit is relu of its shortcut (google-research/vision_transformer, models_resnet.py; the
    same in big_vision, models/bit.py).

    Input: (B, H, W, C). Output: (B, h, w, 4 F), not negative.

    Args:
        filters, stride: See `ResNetUnit`; 32 divides the filters.
        form: "v1" or "timm", which have different epsilons.
    """

    def __init__(self, filters, stride=1, form="v1", **kwargs):
        super().__init__(filters, stride, **kwargs)
        self.form = form

    def build(self, input_shape):
        form, dtype, width = self.form, self.dtype_policy, EXPANSION * self.filters
        self.conv_proj = self.gn_proj = None
        if input_shape[-1] != width or self.stride != 1:
            self.conv_proj = convolution(form, width, 1, self.stride, "conv_proj", dtype)
            self.gn_proj = group_norm(form, "gn_proj", dtype)
        self.conv1 = convolution(form, self.filters, 1, 1, "conv1", dtype)
        self.gn1 = group_norm(form, "gn1", dtype)
        self.conv2 = convolution(form, self.filters, 3, self.stride, "conv2", dtype)
        self.gn2 = group_norm(form, "gn2", dtype)
        self.conv3 = convolution(form, width, 1, 1, "conv3", dtype)
        self.gn3 = group_norm(form, "gn3", dtype, gamma="zeros")

        if self.conv_proj:
            build_for(input_shape[-1], self.conv_proj)
            build_for(width, self.gn_proj)
        build_for(input_shape[-1], self.conv1)
        build_for(self.filters, self.gn1, self.conv2, self.gn2, self.conv3)
        build_for(width, self.gn3)

    def call(self, maps):
        shortcut = self.gn_proj(self.conv_proj(maps)) if self.conv_proj else maps  # (B, h, w, 4F)
        branch = self.gn1(self.conv1(maps), relu=True)  # (B, H, W, F)
        branch = self.gn2(self.conv2(branch), relu=True)  # (B, h, w, F)
        return ops.relu(shortcut + self.gn3(self.conv3(branch)))  # (B, h, w, 4F)

    def get_config(self):
        return {**super().get_config(), "form": self.form}


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationBottleneck(ResNetUnit):
    """A unit of the published BiT models: shortcut(x) + conv3(relu(gn3(...))), normalized before each convolution.

    The shortcut is a strided 1 x 1 convolution of relu(gn1(x)) where the shape changes ("Big Transfer", arXiv
    1912.11370, with its code: google-research/big_transfer, bit_tf2/models.py).

    Input: (B, H, W, C). Output: (B, h, w, 4 F). 32 divides C and F.
    """

    def build(self, input_shape):
        form, dtype, width = "paper", self.dtype_policy, EXPANSION * self.filters
        self.gn1 = group_norm(form, "gn1", dtype)
        self.conv_proj = None
        if input_shape[-1] != width or self.stride != 1:
            self.conv_proj = convolution(form, width, 1, self.stride, "conv_proj", dtype)
        self.conv1 = convolution(form, self.filters, 1, 1, "conv1", dtype)
        self.gn2 = group_norm(form, "gn2", dtype)
        self.conv2 = convolution(form, self.filters, 3, self.stride, "conv2", dtype)
        self.gn3 = group_norm(form, "gn3", dtype)
        self.conv3 = convolution(form, width, 1, 1, "conv3", dtype)

        if self.conv_proj:
            build_for(input_shape[-1], self.conv_proj)
        build_for(input_shape[-1], self.gn1, self.conv1)
        build_for(self.filters, self.gn2, self.conv2, self.gn3, self.conv3)

    def call(self, maps):
        branch = self.gn1(maps, relu=True)  # (B, H, W, C)
        shortcut = self.conv_proj(branch) if self.conv_proj else maps  # (B, h, w, 4F)
        branch = self.gn2(self.conv1(branch), relu=True)  # (B, H, W, F)
        branch = branch if self.stride == 1 else padded(branch, 1)
        branch = self.gn3(self.conv2(branch), relu=True)  # (B, h, w, F)
        return shortcut + self.conv3(branch)  # (B, h, w, 4F)
