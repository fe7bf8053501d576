"""BiT, the ResNet that the Vision Transformer is compared with. B batch, H W pixels, h w map, C channels."""

import keras
from keras import ops

from keras_vit.images import as_size
from keras_vit.integers import plain
from keras_vit.layers.resnet.backbone import ResNetBackbone
from keras_vit.layers.resnet.bottleneck import build_for, group_norm
from keras_vit.models import parts
from keras_vit.models.inputs import checked, output_spec
from keras_vit.models.quantized import refuse_quantized
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.transfer import copy_weights


@keras.saving.register_keras_serializable(package="keras_vit")
class BiT(keras.Model):
    """ "Big Transfer" (arXiv 1912.11370), the "ResNet (BiT)" of the paper's section 4.1: see `ResNetBackbone`.

    Input: (B, H, W, 3) float, RGB in [-1, 1] for published weights, of any size. Output: logits (B, num_classes),
    float32 also under mixed precision; with `num_classes=0` the features (B, C).

    The weights exist as soon as the model is made. Under a `mixed_bfloat16` policy the statistics of kernels and group
    normalizations and the head are computed in float32.

    Args:
        stages: Units in each stage: (3, 4, 6, 3) for R50, (3, 4, 23, 3) for R101, (3, 8, 36, 3) for R152.
        width_factor: 1, 2, 3 or 4 in published models: the x1 of R50x1.
        num_classes: Outputs of the head, which starts at zeros; 0 for no head.
        image_size: Pixels, one number or (height, width), for what needs a size, such as an export; images of other
            sizes are taken all the same. None where none is needed.
        preprocessing: See `VisionTransformer`; at 224 pixels if there is no `image_size`.
        form: "paper", the published models, which normalize the map once more before it is averaged, or "v1", the
            ResNet of hybrids and of big_vision's models/bit.py.
        pool_padding: See `ResNetBackbone`.

    Raises:
        ValueError: See `ResNetBackbone`; and no stages. When called: what is no batch of float images.
    """

    def __init__(
        self,
        *,
        stages=(3, 4, 6, 3),
        width_factor=1,
        num_classes=1000,
        image_size=None,
        preprocessing=None,
        form="paper",
        pool_padding="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not stages:
            raise ValueError(f"`stages` must name the units of one stage at least. Received: {stages!r}")
        dtype = self.dtype_policy
        self.image_size = None if image_size is None else as_size(image_size)
        self.preprocessing = Preprocessing.made(preprocessing, self.image_size or 224)
        self.backbone = ResNetBackbone(stages, width_factor, form, pool_padding, dtype=dtype, name="backbone")
        given = {
            "stages": self.backbone.stages,
            "width_factor": width_factor,
            "num_classes": num_classes,
            "image_size": self.image_size,
            "preprocessing": self.preprocessing.get_config(),
            "form": form,
            "pool_padding": pool_padding,
        }
        self.arguments = plain(given)
        self.num_classes = self.arguments["num_classes"]
        self.norm = group_norm(form, "norm", dtype) if form == "paper" else None
        self.head = parts.head(self.arguments, self.dtype_policy)
        self.build((None, *(self.image_size or (None, None)), 3))

    def build(self, input_shape):
        if self.built:
            return
        self.backbone.build(input_shape)
        if self.norm:
            build_for(self.backbone.channels, self.norm)
        if self.head:
            self.head.build((None, self.backbone.channels))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_classes or self.backbone.channels)

    def compute_output_spec(self, images, training=None):
        return output_spec(self, images)

    def call(self, images, training=None):
        features = self.features(images, training=training)
        return self.head(features) if self.head else features

    def features(self, images, training=False):
        """What the head sees: (B, H, W, 3) -> (B, C)."""
        return ops.mean(self.feature_map(images, training=training), axis=(1, 2))  # (B, C)

    def feature_map(self, images, training=False):
        """The map before it is averaged, not negative: (B, H, W, 3) -> (B, h, w, C)."""
        maps = self.backbone(checked(images), training=training)
        return ops.relu(self.norm(maps)) if self.norm else maps  # (B, h, w, C)

    def preprocess(self, images):
        """Images of any size, pixels in [0, 255], to what the model takes; see `Preprocessing`."""
        return self.preprocessing(images)

    def with_head(self, num_classes: int):
        """Returns a new model with the same weights and a new head of zeros; 0 for no head."""
        model = self._remade(num_classes=num_classes)
        copy_weights(self, model, skip=("head",))
        return model

    def resized(self, image_size):
        """Returns a new model with the same weights and another `image_size`."""
        model = self._remade(image_size=image_size)
        copy_weights(self, model)
        return model

    def _remade(self, **changes):
        return type(self).from_config({**self.get_config(), **changes})

    def get_config(self):
        refuse_quantized(self)
        return {**super().get_config(), **self.arguments}
