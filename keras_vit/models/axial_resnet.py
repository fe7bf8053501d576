"""The ResNet with axial attention. B batch, H W pixels, h w feature map, F filters."""

from dataclasses import asdict, dataclass

import keras
from keras import ops

from keras_vit import classification
from keras_vit.class_names.files import names_of_outputs
from keras_vit.images import as_size
from keras_vit.integers import is_integer
from keras_vit.layers.axial_attention import check_channels
from keras_vit.layers.config import fields_as_keywords, set_fields
from keras_vit.layers.resnet.axial_bottleneck import AxialBottleneck, convolution, group_norm
from keras_vit.layers.resnet.bottleneck import shrunk
from keras_vit.models import inputs, parts
from keras_vit.models.config import check_num_classes
from keras_vit.models.inputs import check_not_quantized, checked_images, output_spec
from keras_vit.models.keras_files import save
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.transfer import copy_weights

ROOT_WIDTH = 64
FIX = "build a model with image_size={size}: its positions are relative"


@dataclass(frozen=True, kw_only=True)
class AxialResNetConfig:
    """The keyword arguments of an `AxialResNet`.

    Args:
        image_size: Pixels, one number or (height, width).
        num_classes: Outputs of the head, whose initial weights are zeros; 0 for no head.
        stages: Units of each stage. The first works on maps of 1/4 of the image's sides, each other halves them.
        width_factor: Multiplies all channels.
        num_heads: Number of heads of every attention layer.
        preprocessing, class_names: See `ViTConfig`.

    Raises:
        ValueError: Stages without units; channels that 32 groups or the heads do not divide; a number of classes that
            is not an integer of at least 0.
    """

    image_size: tuple[int, int] = (224, 224)
    num_classes: int = 1000
    stages: tuple[int, ...] = (3, 4, 6, 3)
    width_factor: float = 1
    num_heads: int = 8
    preprocessing: Preprocessing = None  # type: ignore[assignment]
    class_names: tuple[str, ...] | None = None

    def __post_init__(self):
        if not self.stages or not all(map(is_integer, self.stages)):
            raise ValueError(
                f"`stages` must be the number of units in each stage, such as (3, 4, 6, 3). Received: {self.stages!r}"
            )
        check_channels(ROOT_WIDTH * self.width_factor, self.num_heads)
        check_num_classes(self.num_classes)
        size = as_size(self.image_size)
        preprocessing = Preprocessing.from_argument(self.preprocessing, size)
        names = names_of_outputs(self.class_names, self.num_classes)
        changes = {
            "image_size": size,
            "stages": tuple(self.stages),
            "preprocessing": preprocessing,
            "class_names": names,
        }
        set_fields(self, **vars(self) | changes)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialResNet(keras.Model):
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

    @fields_as_keywords(AxialResNetConfig)
    def __init__(self, *, config: AxialResNetConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.image_size = config.image_size
        self.num_classes = config.num_classes
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
        self.head = parts.head(config.num_classes, dtype)
        self.build(self.input_shape)

    def build(self, input_shape):
        if self.built:
            return
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

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_classes or self.feature_width)

    def compute_output_spec(self, images, training=None):
        return output_spec(self, images, self.image_size, FIX)

    def call(self, images, training=None):
        features = self.features(images, training=training)
        return self.head(features) if self.head else features

    def features(self, images, training=False):
        """The head's input, the mean of the last feature map: (B, H, W, 3) -> (B, 2048 * width_factor)."""
        images = checked_images(images, self.preprocessing, self.image_size, FIX)
        maps = ops.relu(self.gn_root(self.conv_root(images)))
        maps = ops.max_pool(maps, 3, strides=2, padding="same", data_format="channels_last")
        for unit in self.units:
            maps = unit(maps)  # (B, h, w, 4F)
        return ops.mean(maps, axis=(1, 2))  # (B, 4F)

    def preprocess(self, images):
        """Images of any size, pixels in [0, 255], to the model's input; see `Preprocessing`."""
        return self.preprocessing(images)

    save = save
    input_shape = property(inputs.input_shape)
    output_shape = property(inputs.output_shape)
    preprocessing = property(inputs.preprocessing, inputs.set_preprocessing)
    class_names = property(classification.class_names, classification.set_class_names)
    classify = classification.classify

    def with_head(self, num_classes: int, class_names=None):
        """Returns a new model with the same weights and a new head of zeros; 0 for no head."""
        changes = {"num_classes": num_classes, "class_names": class_names, "trainable": True}
        model = type(self).from_config({**self.get_config(), **changes})
        copy_weights(self, model, skip=("head",))
        return model

    def get_config(self):
        check_not_quantized(self)
        return {**super().get_config(), **asdict(self.config)}
