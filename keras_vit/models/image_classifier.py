"""A classifier of images from any Keras model. B batch, H W pixels, h w map, N tokens, D width of the features."""

from dataclasses import dataclass, replace

import keras
from keras import ops

from keras_vit.class_names import names_of_outputs
from keras_vit.images import as_size
from keras_vit.images.pixel_range import scaled_range
from keras_vit.images.preprocessing import NAMED, Preprocessing
from keras_vit.keras_internals import all_layers, call_of
from keras_vit.layers.config import fields_as_keywords, set_fields
from keras_vit.models.config import check_num_classes
from keras_vit.models.image_model import ImageModel, linear_head

ANY_SIZE = "build the backbone with input_shape=(None, None, 3)"


@dataclass(frozen=True, kw_only=True)
class ImageClassifierConfig:
    """The keyword arguments that an `ImageClassifier`, a `BiT` and an `AxialResNet` share.

    Args:
        num_classes: Outputs of the head, whose initial weights are zeros; 0 for no head.
        image_size: Pixels, one number or (height, width), for uses that require a size, such as an export; the model
            still takes images of any size. None if no size is required.
        preprocessing: See `ViTConfig`; at 224 pixels without an `image_size`.
        class_names, multi_label: See `ViTConfig`.

    Raises:
        ValueError: A number of classes that is not an integer of at least 0.
    """

    num_classes: int = 1000
    image_size: tuple[int, int] | None = None
    preprocessing: Preprocessing = None  # type: ignore[assignment]
    class_names: tuple[str, ...] | None = None
    multi_label: bool = False

    def __post_init__(self):
        check_num_classes(self.num_classes)
        size = None if self.image_size is None else as_size(self.image_size)
        preprocessing = Preprocessing.from_argument(self.preprocessing, size or 224)
        set_fields(self, **vars(self) | {"image_size": size, "preprocessing": preprocessing})
        set_fields(self, class_names=names_of_outputs(self.class_names, self.num_classes))


@keras.saving.register_keras_serializable(package="keras_vit")
class ImageClassifier(ImageModel):
    """Any Keras model of images with a linear head, for all that takes models of keras_vit: recipes, exports, commands.

    Input: (B, H, W, 3) float, as the backbone takes it. Output: logits (B, num_classes), float32 also under mixed
    precision; with `num_classes=0` the features (B, D).

        backbone = keras.applications.EfficientNetB0(include_top=False, input_shape=(None, None, 3))
        model = keras_vit.ImageClassifier(backbone, num_classes=10, preprocessing="pixels")

    Args:
        backbone: A Keras model or layer that returns features (B, D), a map (B, h, w, D) or tokens (B, N, D), of which
            the mean is taken. It must be serializable: copies are made from its configuration. A dtype policy other
            than that of its layers makes a copy.
        config: An `ImageClassifierConfig`, or its fields as keyword arguments, which are explained there.
            `preprocessing` is required: "pixels" for pixels in [0, 255], as EfficientNet takes them, "half" for
            [-1, 1], "imagenet", "clip", fields, or a `Preprocessing`. Another scale is a layer of the backbone, such as
            `keras.applications.resnet.preprocess_input(keras.Input((224, 224, 3)))` with "pixels".

    Raises:
        ValueError: There is no `preprocessing`; the backbone has another kind of output, or takes images of a size that
            is not `image_size`. When called: the input is not a batch of float images (B, H, W, 3).
    """

    any_backbone = True  # see `named_weights`

    @fields_as_keywords(ImageClassifierConfig)
    def __init__(self, backbone, *, config: ImageClassifierConfig, **kwargs):
        if config.preprocessing.origin == "assumed":
            raise ValueError(
                "Nothing states how the pixels of the backbone are scaled. Pass preprocessing="
                f"{', '.join(map(repr, NAMED))} or fields of keras_vit.Preprocessing; see docs/other_models.md."
            )
        backbone, kwargs["dtype"] = _of_policy(backbone, kwargs.get("dtype"))
        size = _input_size(backbone, config.preprocessing)
        if None not in size:
            if config.image_size not in (None, size):
                raise ValueError(
                    f"{backbone.name} takes images of {size} pixels. Received: image_size={config.image_size}. If it "
                    f"can take others, {ANY_SIZE}."
                )
            config = replace(config, image_size=size)
        super().__init__(config, **kwargs)
        self.size_fix = None if None in size else ANY_SIZE
        self.backbone = backbone
        self.head = linear_head(config.num_classes, self.dtype_policy)
        self._create_weights()

    @classmethod
    def from_model(cls, model, **arguments):
        """Divides a trained classifier into a backbone, with which it shares its layers, and a head.

        Args:
            model: A Sequential or functional model that ends in a `Dense` layer, with a softmax, a sigmoid or neither:
                the outputs are logits in each case. With a sigmoid several classes of an image may be right.
            **arguments: Of `ImageClassifier`, without `num_classes`.

        Raises:
            ValueError: The model ends in something else; see `ImageClassifier`.
        """
        dense, activation = _last_dense(model)
        graph, features, _ = call_of(model, dense)
        if len(features.shape) != 2:
            raise ValueError(
                f"Expected features (B, D) before {dense.name}. Received: {features.shape}, from {model.name}."
            )
        arguments = {"multi_label": activation == "sigmoid" and dense.units > 1, **arguments}
        result = cls(keras.Model(graph.inputs, features, name=model.name), num_classes=dense.units, **arguments)
        result.head.kernel.assign(dense.kernel)
        if dense.use_bias:
            result.head.bias.assign(dense.bias)
        result.head.trainable = dense.trainable
        return result

    def _build_layers(self, input_shape):
        outputs = self.backbone(keras.Input(input_shape[1:]))
        shape = getattr(outputs, "shape", ())
        if len(shape) not in (2, 3, 4) or shape[-1] is None:
            raise ValueError(
                "Expected a backbone that returns (B, D), (B, N, D) or (B, h, w, D). Received: "
                f"{self.backbone.name}, which returns {shape or type(outputs).__name__}. Pass a model of one of them: "
                "keras.Model(backbone.inputs, features)."
            )
        self.feature_width = shape[-1]
        if self.head:
            self.head.build((None, self.feature_width))

    def features(self, images, training=False):
        """The head's input: (B, H, W, 3) -> (B, D)."""
        # `training=None` would mean True for Keras's random layers.
        outputs = self.backbone(self._checked_images(images), training=bool(training))
        return ops.mean(outputs, axis=tuple(range(1, len(outputs.shape) - 1))) if len(outputs.shape) > 2 else outputs

    def get_config(self):
        return {**super().get_config(), "backbone": keras.saving.serialize_keras_object(self.backbone)}


def _last_dense(model):
    """The `Dense` layer at the end of a model, and the name of the activation after it; None without one."""
    before, last = [None, None, *getattr(model, "layers", ())][-2:]
    dense = before if isinstance(last, (keras.layers.Activation, keras.layers.Softmax)) else last
    layers = (dense,) if dense is last else (dense, last)
    activations = [getattr(layer, "activation", keras.activations.softmax) for layer in layers]
    names = [getattr(activation, "__name__", "other") for activation in activations]
    names = [name for name in names if name != "linear"]
    if not isinstance(dense, keras.layers.Dense) or names not in ([], ["softmax"], ["sigmoid"]):
        raise ValueError(
            "Expected a Sequential or functional model that ends in a Dense layer, with softmax, sigmoid or neither. "
            f"Received: {model.name}, which ends in {getattr(last, 'name', 'no layer')}. Pass the part before the head "
            "to ImageClassifier(backbone, num_classes=...)."
        )
    return dense, next(iter(names), None)


def _input_size(backbone, preprocessing) -> tuple:
    """Height and width of the images that a backbone takes, None for any. Raises a ValueError if it takes no images."""
    shape, inputs = getattr(backbone, "input_shape", (None,) * 4), getattr(backbone, "inputs", None) or ()
    if len(inputs) > 1 or len(shape) != 4 or shape[3] not in (None, 3) or (shape[1] is None) != (shape[2] is None):
        raise ValueError(
            "Expected a backbone with one input of images, (None, height, width, 3), both sides known or none. "
            f"Received: {backbone.name}, which takes {shape}."
        )
    low, high = scaled_range(preprocessing.mean, preprocessing.std)
    dtype = inputs[0].dtype if inputs else "float32"
    if not keras.backend.is_float_dtype(dtype) and (low, high) != (0, 255):
        raise ValueError(
            f'Expected preprocessing="pixels" for {backbone.name}, whose input is {dtype}. Received: pixels between '
            f"{low:.3g} and {high:.3g}, which it would round."
        )
    return shape[1:3]


def _of_policy(backbone, dtype):
    """A backbone, from its configuration if it is one, with this dtype policy, by default its own; and the policy."""
    if isinstance(backbone, dict):
        backbone = keras.saving.deserialize_keras_object(backbone)
    if not isinstance(backbone, keras.layers.Layer):
        raise ValueError(f"Expected a Keras model or layer that takes images. Received: {backbone!r}")
    # A functional model has no policy of its own: that of most of its layers.
    names = [layer.dtype_policy.name for layer in all_layers(backbone) if layer.weights]
    own = max(names, key=names.count, default=keras.config.dtype_policy().name)
    policy = keras.dtype_policies.get(dtype or own)
    if policy.name != own:
        weights, config = backbone.get_weights(), keras.saving.serialize_keras_object(backbone)
        backbone = keras.saving.deserialize_keras_object(_with_policy(config, own, policy.name))
        backbone.set_weights(weights)
    return backbone, policy


def _with_policy(config, old: str, new: str):
    """A serialized object in which one dtype policy is replaced by another."""
    if isinstance(config, dict):
        if config.get("class_name") == "DTypePolicy" and config["config"]["name"] == old:
            return {**config, "config": {"name": new}}
        return {name: _with_policy(value, old, new) for name, value in config.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(_with_policy(value, old, new) for value in config)
    return config
