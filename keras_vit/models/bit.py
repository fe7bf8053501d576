"""BiT, the ResNet that the paper compares the Vision Transformer with. B batch, H W pixels, h w map, C channels."""

from dataclasses import dataclass

import keras
from keras import ops

from keras_vit.class_names import names_of_outputs
from keras_vit.images import as_size
from keras_vit.layers.config import fields_as_keywords, set_fields
from keras_vit.layers.resnet.backbone import ResNetBackbone
from keras_vit.layers.resnet.bottleneck import build_for, group_norm
from keras_vit.models.config import check_num_classes
from keras_vit.models.image_model import ImageModel, linear_head
from keras_vit.named_weights import copy_weights
from keras_vit.preprocessing import Preprocessing


@dataclass(frozen=True, kw_only=True)
class BiTConfig:
    """The keyword arguments of a `BiT`.

    Args:
        stages: Units in each stage: (3, 4, 6, 3) for R50, (3, 4, 23, 3) for R101, (3, 8, 36, 3) for R152.
        width_factor: 1, 2, 3 or 4 in published models: the x1 of R50x1.
        num_classes: Outputs of the head, whose initial weights are zeros; 0 for no head.
        image_size: Pixels, one number or (height, width), for uses that require a size, such as an export; the model
            still takes images of any size. None if no size is required.
        preprocessing: See `ViTConfig`; at 224 pixels without an `image_size`.
        form: "paper", the published models, with one more normalization before pooling, or "v1", the ResNet of hybrids
            and of big_vision's models/bit.py.
        pool_padding: See `ResNetBackbone`.
        class_names, multi_label: See `ViTConfig`.

    Raises:
        ValueError: No stages, or a number of classes that is not an integer of at least 0.
    """

    stages: tuple[int, ...] = (3, 4, 6, 3)
    width_factor: float = 1
    num_classes: int = 1000
    image_size: tuple[int, int] | None = None
    preprocessing: Preprocessing = None  # type: ignore[assignment]
    form: str = "paper"
    pool_padding: str = "zeros"
    class_names: tuple[str, ...] | None = None
    multi_label: bool = False

    def __post_init__(self):
        if not self.stages:
            raise ValueError(f"`stages` must be the number of units in at least one stage. Received: {self.stages!r}")
        check_num_classes(self.num_classes)
        size = None if self.image_size is None else as_size(self.image_size)
        preprocessing = Preprocessing.from_argument(self.preprocessing, size or 224)
        stages = tuple(self.stages) if isinstance(self.stages, list) else self.stages
        changes = {"stages": stages, "image_size": size, "preprocessing": preprocessing}
        set_fields(self, **vars(self) | changes)
        set_fields(self, class_names=names_of_outputs(self.class_names, self.num_classes))


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
        self.build(self.input_shape)

    def _build_layers(self, input_shape):
        self.backbone.build(input_shape)
        if self.norm:
            build_for(self.backbone.channels, self.norm)
        if self.head:
            self.head.build((None, self.backbone.channels))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_classes or self.backbone.channels)

    def features(self, images, training=False):
        """The head's input: (B, H, W, 3) -> (B, C)."""
        return ops.mean(self.feature_map(images, training=training), axis=(1, 2))  # (B, C)

    def feature_map(self, images, training=False):
        """The feature map before global average pooling, not negative: (B, H, W, 3) -> (B, h, w, C)."""
        maps = self.backbone(self._checked_images(images), training=training)
        return ops.relu(self.norm(maps)) if self.norm else maps  # (B, h, w, C)

    def outputs_from(self, feature_map):
        """The model's outputs from its `feature_map`, such as for Grad-CAM: (B, h, w, C) -> (B, num_classes)."""
        features = ops.mean(feature_map, axis=(1, 2))
        return self.head(features) if self.head else features

    def resized(self, image_size):
        """Returns a new model with the same weights and another `image_size`."""
        model = self._rebuilt(image_size=image_size)
        copy_weights(self, model)
        return model
