"""The ResNet with axial attention. B batch, H W pixels, h w feature map, F filters."""

from dataclasses import dataclass

import keras
from keras import ops

from keras_vit.images import as_size, is_integer
from keras_vit.layers.axial import AxialAttention, check_channels
from keras_vit.layers.config import fields_as_keywords, set_fields
from keras_vit.layers.resnet.bottleneck import GROUPS, ResNetUnit, shrunk
from keras_vit.layers.resnet.standardized_conv import GroupNorm, StandardizedConv2D
from keras_vit.models.image_classifier import ImageClassifierConfig
from keras_vit.models.image_model import ImageModel, linear_head

ROOT_WIDTH = 64


@dataclass(frozen=True, kw_only=True)
class AxialResNetConfig(ImageClassifierConfig):
    """The keyword arguments of an `AxialResNet`, with those of an `ImageClassifierConfig`.

    Args:
        image_size: Pixels, one number or (height, width).
        stages: Units of each stage. The first works on maps of 1/4 of the image's sides, each other halves them.
        width_factor: Multiplies all channels.
        num_heads: Number of heads of every attention layer.

    Raises:
        ValueError: Stages without units; channels that 32 groups or the heads do not divide; or see
            `ImageClassifierConfig`.
    """

    image_size: tuple[int, int] = (224, 224)
    stages: tuple[int, ...] = (3, 4, 6, 3)
    width_factor: float = 1
    num_heads: int = 8

    def __post_init__(self):
        if not self.stages or not all(map(is_integer, self.stages)):
            raise ValueError(
                f"`stages` must be the number of units in each stage, such as (3, 4, 6, 3). Received: {self.stages!r}"
            )
        check_channels(ROOT_WIDTH * self.width_factor, self.num_heads)
        super().__post_init__()
        set_fields(self, stages=tuple(self.stages))


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialResNet(ImageModel):
    """AxialResNet-50 of the paper's appendix D.6: ResNet-50 with axial attention for every 3 x 3 convolution.

    "Axial-DeepLab" (arXiv 2003.07853) in the form of scenic's axial_resnet.py: standardized convolutions, group
    normalization, average pooling for the stride; for the one difference see `AxialAttention`. 19,373,640 weights at
    224 pixels with 1000 classes, as in scenic. The lines of 56 positions in the first stage make it slow for its size,
    as the paper found.

    Input: (B, H, W, 3) float, RGB in [-1, 1]. Output: logits (B, num_classes), float32 also under mixed precision; with
    `num_classes=0` the features (B, 2048 * width_factor).

    The model is built, with weights, when it is constructed. The shapes of relative positions depend on the image size.

    Args:
        config: An `AxialResNetConfig`, or its fields as keyword arguments; they are explained there.

    Raises:
        ValueError: Stages without units; channels that 32 groups or the heads do not divide. When called: the
            input is not a batch of float images of this size.
    """

    size_fix = "build a model with image_size={size}: its positions are relative"

    @fields_as_keywords(AxialResNetConfig)
    def __init__(self, *, config: AxialResNetConfig, **kwargs):
        super().__init__(config, **kwargs)
        dtype, width = self.dtype_policy, int(ROOT_WIDTH * config.width_factor)
        self.conv_root = convolution(width, 7, 2, "conv_root", dtype)
        self.gn_root = group_norm("gn_root", dtype)
        self.units = [
            AxialBottleneck(
                width * 2**stage,
                stride=2 if stage and not unit else 1,
                num_heads=config.num_heads,
                dtype=dtype,
                name=f"block{stage + 1}_unit{unit + 1}",
            )
            for stage, count in enumerate(config.stages)
            for unit in range(count)
        ]
        self.head = linear_head(config.num_classes, dtype)
        self._create_weights()

    def _build_layers(self, input_shape):
        self.conv_root.build(input_shape)
        shape = self.conv_root.compute_output_shape(input_shape)
        self.gn_root.build(shape)
        shape = (shape[0], shrunk(shape[1], 2), shrunk(shape[2], 2), shape[3])  # after max pooling
        for unit in self.units:
            unit.build(shape)
            shape = unit.compute_output_shape(shape)
        self.feature_width = shape[3]
        if self.head:
            self.head.build((None, self.feature_width))

    def resized(self, image_size, *, name: str | None = None):
        """Returns a copy of the model; raises a ValueError for another size than its own."""
        if as_size(image_size) != self.image_size:
            raise ValueError(f"{self.name} is for {self.image_size} pixels: its positions fit no other size.")
        return super().resized(image_size, name=name)

    def features(self, images, training=False):
        """The head's input, the mean of the last feature map: (B, H, W, 3) -> (B, 2048 * width_factor)."""
        images = self._checked_images(images)
        maps = self.gn_root(self.conv_root(images), relu=True)
        maps = ops.max_pool(maps, 3, strides=2, padding="same", data_format="channels_last")
        for unit in self.units:
            maps = unit(maps)  # (B, h, w, 4F)
        return ops.mean(maps, axis=(1, 2))  # (B, 4F)


EPSILON = 1e-4


def convolution(filters, size, stride, name, dtype):
    """A convolution standardized as in BiT, with TensorFlow's padding "same"."""
    options = {"strides": stride, "padding": "same", "dtype": dtype, "name": name}
    return StandardizedConv2D(filters, size, 1e-10, "variance", **options)


def group_norm(name, dtype, gamma="ones"):
    return GroupNorm(GROUPS, EPSILON, gamma_initializer=gamma, dtype=dtype, name=name)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialBottleneck(ResNetUnit):
    """A ResNet bottleneck whose 3 x 3 convolution is `AxialAttention` along the height, then along the width.

    relu(shortcut(x) + gn3(conv3(relu(pool(attention(relu(gn1(conv1(x))))))))), where pool averages 2 x 2 if the stride
    is 2. The shortcut is a strided 1 x 1 convolution with normalization where the shape changes. The last scale is
    initially zero, so a new unit is relu of its shortcut.

    Input: (B, H, W, C). Output: (B, h, w, 4 F), not negative; the attention has F channels.
    """

    def __init__(self, filters, stride=1, num_heads=8, **kwargs):
        super().__init__(filters, stride, **kwargs)
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
        branch = self.gn1(self.conv1(maps), relu=True)  # (B, H, W, F)
        branch = self.attention_width(self.attention_height(branch))  # (B, H, W, F)
        if self.stride > 1:
            options = {"strides": self.stride, "padding": "same", "data_format": "channels_last"}
            branch = ops.average_pool(branch, self.stride, **options)  # (B, h, w, F)
        return ops.relu(shortcut + self.gn3(self.conv3(ops.relu(branch))))  # (B, h, w, 4F)

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}
