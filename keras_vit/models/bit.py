"""BiT, the ResNet that the paper compares the Vision Transformer with. B batch, H W pixels, h w map, C channels."""

from dataclasses import dataclass

import keras
from keras import ops

from keras_vit.layers.config import fields_as_keywords, set_fields
from keras_vit.layers.resnet.backbone import ResNetBackbone
from keras_vit.layers.resnet.bottleneck import build_for, group_norm
from keras_vit.models.image_classifier import ImageClassifierConfig
from keras_vit.models.image_model import ImageModel, linear_head


@dataclass(frozen=True, kw_only=True)
class BiTConfig(ImageClassifierConfig):
    """The keyword arguments of a `BiT`, with those of an `ImageClassifierConfig`.

    Args:
        stages: Units in each stage: (3, 4, 6, 3) for R50, (3, 4, 23, 3) for R101, (3, 8, 36, 3) for R152.
        width_factor: 1, 2, 3 or 4 in published models: the x1 of R50x1.
        form: "paper", the published models, with one more normalization before pooling, or "v1", the ResNet of hybrids
            and of big_vision's models/bit.py.
        pool_padding: See `ResNetBackbone`.

    Raises:
        ValueError: No stages, or see `ImageClassifierConfig`.
    """

    stages: tuple[int, ...] = (3, 4, 6, 3)
    width_factor: float = 1
    form: str = "paper"
    pool_padding: str = "zeros"

    def __post_init__(self):
        if not self.stages:
            raise ValueError(f"`stages` must be the number of units in at least one stage. Received: {self.stages!r}")
        super().__post_init__()
        set_fields(self, stages=tuple(self.stages) if isinstance(self.stages, list) else self.stages)


@keras.saving.register_keras_serializable(package="keras_vit")
class BiT(ImageModel):
    """ "Big Transfer" (arXiv 1912.11370), the "ResNet (BiT)" of the paper's section 4.1: see `ResNetBackbone`.

    Input: (B, H, W, 3) float, RGB in [-1, 1] for published weights, of any size. Output: logits (B, num_classes),
    float32 also under mixed precision; with `num_classes=0` the features (B, C).

    The model is built, with weights, when it is constructed. Under a `mixed_bfloat16` policy the statistics of kernels
    and group normalizations and the head are computed in float32.

    Args:
        config: A `BiTConfig`, or its fields as keyword arguments; they are explained there.

    Raises:
        ValueError: See `BiTConfig` and `ResNetBackbone`. When called: the input is not a batch of float images.
    """

    @fields_as_keywords(BiTConfig)
    def __init__(self, *, config: BiTConfig, **kwargs):
        super().__init__(config, **kwargs)
        dtype, form = self.dtype_policy, config.form
        self.backbone = ResNetBackbone(
            config.stages, config.width_factor, form, config.pool_padding, dtype=dtype, name="backbone"
        )
        self.norm = group_norm(form, "norm", dtype) if form == "paper" else None
        self.head = linear_head(config.num_classes, dtype)
        self._create_weights()

    def _build_layers(self, input_shape):
        self.backbone.build(input_shape)
        self.feature_width = self.backbone.channels
        if self.norm:
            build_for(self.backbone.channels, self.norm)
        if self.head:
            self.head.build((None, self.feature_width))

    def features(self, images, training=False):
        """The head's input: (B, H, W, 3) -> (B, C)."""
        return ops.mean(self.feature_map(images, training=training), axis=(1, 2))  # (B, C)

    def feature_map(self, images, training=False):
        """The feature map before global average pooling, not negative: (B, H, W, 3) -> (B, h, w, C)."""
        maps = self.backbone(self._checked_images(images), training=training)
        return self.norm(maps, relu=True) if self.norm else maps  # (B, h, w, C)

    def outputs_from(self, feature_map):
        """The model's outputs from its `feature_map`, such as for Grad-CAM: (B, h, w, C) -> (B, num_classes)."""
        features = ops.mean(feature_map, axis=(1, 2))
        return self.head(features) if self.head else features
