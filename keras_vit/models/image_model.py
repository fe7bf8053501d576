"""What all models share: checks of their input, preprocessing, classes, a new head, saving. B batch, H W pixels."""

import contextlib
import difflib
import functools
import inspect
import os
import warnings
import weakref
from dataclasses import asdict, replace
from functools import partial

import keras
from keras import ops

from keras_vit.images.pixel_range import expected_range, scaled
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.images.resizing import resized
from keras_vit.keras_internals import all_layers, inside_lambda, of_size, release_gradients
from keras_vit.layers.composite import Composite
from keras_vit.models.classification import most_likely_classes
from keras_vit.models.copying import MakesCopies
from keras_vit.models.output_checks import check_loss_and_metrics
from keras_vit.models.pixel_checks import ChecksPixels, is_ours
from keras_vit.other_libraries import with_other_words

KERAS_KEYWORDS = ("name", "dtype", "trainable", "autocast", "activity_regularizer")
# Arguments of Keras's applications and of timm, and what they are here.
WORDS = {
    "include_top": "num_classes=0 for a model without a head",
    "classes": "num_classes",
    "input_shape": "image_size=(height, width)",
    "classifier_activation": "model.classify(images), or keras.ops.softmax of the outputs, which are logits",
    "pretrained": "weights, or keras_vit.load",
    "img_size": "image_size",
    "drop_rate": "dropout",
    "drop_path_rate": "stochastic_depth",
}


@keras.saving.register_keras_serializable(package="keras_vit")
class PreprocessingLayer(keras.layers.Layer):
    """Preprocessing inside a functional model, with which it is saved.

    Images of a known size are resized by matrix products, because converters to TFLite lack the other operations.

    Input: (B, H, W, 3) pixels in [0, 255], uint8 or float. Output: (B, height, width, 3) float32.

    Args:
        preprocessing: A `Preprocessing`, or its fields.
    """

    def __init__(self, preprocessing, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        is_config = not isinstance(preprocessing, Preprocessing)
        self.preprocessing = Preprocessing(**preprocessing) if is_config else preprocessing

    def call(self, images):
        return scaled(resized(images, self.preprocessing, by_products=True), self.preprocessing)

    def compute_output_spec(self, images):
        size, channels = self.preprocessing.image_size, self.preprocessing.channels
        return keras.KerasTensor((images.shape[0], *size, channels), "float32")

    def get_config(self):
        return {**super().get_config(), "preprocessing": self.preprocessing.get_config()}


@with_other_words
class ImageModel(Composite, ChecksPixels, MakesCopies):
    """A model of images with a linear head, built from a configuration.

    Input: (B, H, W, 3) float, see `preprocess`. Output: logits (B, num_classes), float32 also under mixed precision;
    with `num_classes=0` the `features`.

    A class of ours creates its layers and `head`, then calls `_create_weights`, and defines `features` and
    `_build_layers`, which sets `feature_width`. Layers that the `__init__` of a user's subclass adds are built at the
    end of it by a trace of `call`, which also tells the shape of the outputs.

    Args:
        config: A dataclass with `image_size`, `num_classes`, `preprocessing`, `class_names` and `multi_label`, whose
            fields are the keyword arguments of the subclass.
        inner_layers, frozen: See `Composite`.
        added: The build configurations of the layers of a subclass, which `get_config` records.
    """

    # How to handle images of another size, with `{size}` for theirs; None for a model that takes all sizes.
    size_fix: str | None = None

    def __init__(self, config, inner_layers=None, frozen=(), added=(), **kwargs):
        _check_keywords(kwargs, config)
        super().__init__(inner_layers=inner_layers, frozen=frozen, **kwargs)
        self.quantize = partial(_quantize, self.quantize)
        weakref.finalize(self, release_gradients).atexit = False
        self._added, self._takes_input_shape = tuple(added), True
        self.config = config
        self.image_size = config.image_size
        self.num_classes = config.num_classes

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _built_after(cls.__init__)

    def _create_weights(self):
        """Builds the layers of a class of ours. The model is built after the `__init__` of a subclass of it."""
        with keras.name_scope(self.name, caller=self):
            self._build_layers(self.input_shape)
        self._num_own_layers = len(self.layers)

    @property
    def _added_layers(self) -> list:
        """The layers of a subclass, in their order."""
        return self.layers[self._num_own_layers :]

    def build(self, input_shape):
        if self.built or _has_weights(self):
            return
        self._takes_input_shape = False
        with contextlib.suppress(Exception):  # of a `call` with other inputs, whose first call builds the layers
            self._traced(keras.tree.map_shape_structure(keras.KerasTensor, input_shape))
            self._takes_input_shape = True
        for layer, config in zip(self._added_layers, self._added):  # those that only a `train_step` calls
            if config and not layer.built:
                layer.build_from_config(config)

    def compile(self, optimizer="rmsprop", loss=None, loss_weights=None, metrics=None, weighted_metrics=None, **kwargs):
        """As Keras's; raises a ValueError for a loss or metric that takes the outputs, logits, for probabilities."""
        if self.num_classes and is_ours(self):  # a subclass may return probabilities
            check_loss_and_metrics(self, loss, [metrics, weighted_metrics])
        super().compile(optimizer, loss, loss_weights, metrics, weighted_metrics, **kwargs)

    def compile_from_config(self, config):
        """As Keras's, for which the `compile` of this class is a custom one; one of a subclass is."""
        if type(self).compile is not ImageModel.compile:
            return super().compile_from_config(config)
        super().compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def call(self, images, training=None):
        features = self.features(images, training=training)
        return self.head(features) if self.head else features

    def compute_output_shape(self, input_shape):
        if is_ours(self):
            return self._output_shape(input_shape)
        outputs = self._traced(keras.tree.map_shape_structure(keras.KerasTensor, input_shape))
        return keras.tree.map_structure(lambda output: output.shape, outputs)

    def _output_shape(self, input_shape):
        return (input_shape[0], self.num_classes or self.feature_width)

    def _traced(self, *args, **kwargs):
        """What `call` returns for Keras tensors."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_spec(self, *args, **kwargs):
        if type(self).compute_output_shape is not ImageModel.compute_output_shape:
            return super().compute_output_spec(*args, **kwargs)
        return self._output_spec(*args, **kwargs) if is_ours(self) else self._traced(*args, **kwargs)

    def _output_spec(self, images, training=None):
        images = _only(images)
        self._check_images(images)
        dtype = self.head.compute_dtype if self.head else self.compute_dtype
        sides = images.shape[1:3] if self.size_fix is None else self.image_size
        return keras.KerasTensor(self._output_shape((images.shape[0], *sides, self.channels)), dtype)

    def _check_images(self, images):
        """Raises a ValueError unless these are a batch of float images (B, H, W, 3) of a size that the model takes."""
        shape, channels = getattr(images, "shape", None), self.channels
        if getattr(shape, "rank", 0) is None:
            sides = ", ".join(map(str, ("height", "width") if self.size_fix is None else self.image_size))
            raise ValueError(
                "Expected a batch of images, (B, H, W, 3). Received: a tensor of unknown rank, as tf.py_function "
                f"returns. Set its shape by tf.ensure_shape(image, ({sides}, {channels})) before images are batched."
            )
        if shape is None or len(shape) != 4:
            received = type(images).__name__ if shape is None else f"the shape {tuple(shape)}"
            raise ValueError(
                f"Expected a batch of images, (B, H, W, 3). Received: {received}. Add a batch axis to one image: "
                "images[None]; stack a list: numpy.stack(images)."
            )
        if channels != 3 and shape[3] not in (channels, None):
            raise ValueError(
                f"Expected images (B, H, W, {channels}). Received: the shape {tuple(shape)}. Use "
                "model.preprocess(images), which makes gray images of RGB ones, or load the weights with "
                f"channels={shape[3]}."
            )
        if channels == 3 and shape[3] not in (3, None):
            raise ValueError(
                f"Expected RGB images, (B, H, W, 3). Received: the shape {tuple(shape)}. Convert gray images by "
                "numpy.repeat(images, 3, axis=-1), and (B, 3, H, W) by numpy.moveaxis(images, 1, -1)."
            )
        dtype = keras.backend.standardize_dtype(images.dtype)
        if not keras.backend.is_float_dtype(dtype):
            raise ValueError(
                f"Expected float pixels {expected_range(self.preprocessing)}. Received: {dtype}. "
                "Use model.preprocess(images)."
            )
        size = tuple(shape[1:3])
        # A side that is not known yet may be the right one, see `_checked_images`.
        if self.size_fix is not None and any(a not in (b, None) for a, b in zip(size, self.image_size)):
            raise ValueError(
                f"This model takes images of {self.image_size} pixels (height, width). Received: {size}. "
                f"Resize the images, or {self.size_fix.format(size=size)}."
            )

    def _checked_images(self, images):
        """The images (B, H, W, 3), with static height and width if the model takes one size; see `_check_images`."""
        images = _only(images)
        self._check_images(images)
        if self.size_fix is None:
            return images
        if keras.backend.is_keras_tensor(images) and None in images.shape[1:3]:
            return ops.reshape(images, (ops.shape(images)[0], *self.image_size, self.channels))
        return of_size(images, self.image_size)

    def preprocess(self, images):
        """Images of any size, pixels in [0, 255], to the model's input; see `Preprocessing`.

        Of a `keras.Input`: a layer, with which a functional model is saved and converted.
        """
        if isinstance(images, keras.KerasTensor):
            return PreprocessingLayer(self.preprocessing)(images)
        if inside_lambda():
            warnings.warn(
                "A model with keras.layers.Lambda(model.preprocess) cannot be loaded after it was saved. Call it "
                "without Lambda: x = model.preprocess(inputs).",
                stacklevel=2,
            )
        return self.preprocessing(images)

    def classify(self, images, top: int = 5) -> list[list[tuple[str, float]]]:
        """The `top` most likely classes of images with their probabilities; see `keras_vit.classify`."""
        return most_likely_classes(self, images, top)

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared for the model. It is saved with it, and can be set as the argument of a model."""
        return self.config.preprocessing

    @preprocessing.setter
    def preprocessing(self, argument):
        own = self.config.preprocessing  # the image size remains
        changed = Preprocessing.from_argument(argument, own.image_size, own).of_channels(self.channels)
        self.config = replace(self.config, preprocessing=changed)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One line of text per class, in the order of the outputs; None if they are unknown. Saved with the model."""
        return self.config.class_names

    @class_names.setter
    def class_names(self, names):
        self.config = replace(self.config, class_names=names)

    @property
    def multi_label(self) -> bool:
        """Whether an image may have several of the classes. Saved with the model."""
        return self.config.multi_label

    @multi_label.setter
    def multi_label(self, value: bool):
        self.config = replace(self.config, multi_label=bool(value))

    @property
    def input_shape(self) -> tuple:
        """(None, height, width, 3); None for sides of any length."""
        return (None, *(self.image_size or (None, None)), self.channels)

    @property
    def channels(self) -> int:
        """Number of channels of the images: 3, RGB, unless the configuration has another."""
        return getattr(self.config, "channels", 3)

    @property
    def input(self):
        """As Keras's; the error names the functional model, whose layers have tensors."""
        try:
            return super().input
        except AttributeError as error:
            raise AttributeError(f"{error} Use model.as_functional(), which has inputs, outputs and layers.") from None

    @property
    def output_shape(self) -> tuple:
        """Shape of the outputs for a batch of any size: (None, num_classes) with a head."""
        return self.compute_output_shape(self.input_shape)

    def as_functional(self) -> keras.Model:
        """A functional model of the same layers and weights, (B, H, W, 3) -> (B, num_classes).

        It has `inputs`, `outputs` and tensors of its layers, which tools read and subclassed models of Keras lack; but
        neither `preprocess` nor the other methods of this class. With positions in every block it has one layer, this.
        """
        inputs = keras.Input(self.input_shape[1:])
        # Layers that are arguments of another one are no layers of a functional model.
        outputs = self(inputs) if getattr(self, "block_positions", None) else self.call(inputs)
        return keras.Model(inputs, outputs, name=f"{self.name}_functional")

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """`keras.Model.save`, but not to HDF5: Keras reads such a file only with `custom_objects`."""
        if os.fspath(filepath).endswith((".h5", ".hdf5")):
            raise ValueError(
                f"Expected a name that ends in .keras. Received: {filepath}. For HDF5 write the weights alone: "
                "model.save_weights('model.weights.h5')"
            )
        self.get_config()  # its errors must come before the old file is opened
        super().save(filepath, overwrite, zipped, **kwargs)

    def export(self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs):
        """As Keras's; also of a model that was not called yet."""
        shapes = (self.get_build_config() or {}).get("input_shape")
        if shapes and input_signature is None:
            input_signature = [keras.tree.map_shape_structure(_input_spec, shapes)]
        return super().export(filepath, format, verbose, input_signature, **kwargs)

    def get_config(self):
        """The arguments of the model, and what `Composite` states of its layers."""
        config = {**super().get_config(), **asdict(self.config)}
        if self._added_layers:
            config["added"] = [layer.get_build_config() for layer in self._added_layers]
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The model of a configuration, also of an older one, which names the policies of quantized layers alone."""
        config = dict(config)
        if "quantized" in config:
            config["inner_layers"] = {path: {"dtype": policy} for path, policy in config.pop("quantized").items()}
        return super().from_config(config, custom_objects)


def _quantize(quantize, mode=None, config=None, **kwargs):
    """Keras's `quantize` of a model; raises a ValueError for modes whose calibration takes text only."""
    if (kind := mode or getattr(config, "mode", config)) in ("gptq", "awq"):
        raise ValueError(
            f"Keras calibrates {kind} with sequences of tokens, not with images. Received: {kind}. Use int8, int4 or "
            "float8, or export a file of a format that is calibrated with images, int8 or int4-weights: "
            "keras_vit.export.write_tflite(model, folder, ['int8'], calibration=images), or `keras-vit export`."
        )
    quantize(mode, config=config, **kwargs)


def _built_after(init):
    """An `__init__` after which a model of its class, not of a subclass, is built."""

    @functools.wraps(init)
    def run(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if type(self).__init__ is run:
            with contextlib.suppress(Exception):  # of a `build` that expects other inputs: Keras calls it again
                self.build(self.input_shape)
                self.built = self._takes_input_shape

    run.__signature__ = inspect.signature(init)  # which Keras reads
    return run


def _has_weights(model) -> bool:
    """Whether all layers inside a model are built."""
    return all(layer.built for layer in all_layers(model) if layer is not model)


def _input_spec(shape):
    return keras.InputSpec(shape=(None, *shape[1:]), dtype="float32")


def _only(images):
    """The images of a list of one batch, as of `predict([images])`."""
    return images[0] if isinstance(images, (list, tuple)) and len(images) == 1 else images


def linear_head(num_classes: int, dtype, name="head"):
    """A linear classifier in the dtype of the variables, zeros at first: (B, D) -> (B, num_classes)."""
    if not num_classes:
        return None
    return keras.layers.Dense(num_classes, kernel_initializer="zeros", dtype=dtype.variable_dtype, name=name)


def _check_keywords(keywords, config):
    """Raises a ValueError for arguments that no model has; Keras takes some of them without a word."""
    unknown = [name for name in keywords if name not in KERAS_KEYWORDS]
    if not unknown:
        return
    names = [*asdict(config), *KERAS_KEYWORDS]
    words = {name: [WORDS[name]] if name in WORDS else difflib.get_close_matches(name, names, 1) for name in unknown}
    hints = [f"{name}: {word}" for name, near in words.items() for word in near]
    raise ValueError(
        f"Unexpected arguments: {', '.join(unknown)}. Use {'; '.join(hints) or 'one of ' + ', '.join(names)}."
    )
