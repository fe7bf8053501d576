"""Models around one of ours: a Sequential or functional model that adds layers before and after it.

B batch, H W pixels, C classes.
"""

from dataclasses import replace
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_vit.images import normalize
from keras_vit.images.rgb import as_rgb
from keras_vit.keras_internals import all_layers, call_of, operations_of
from keras_vit.models.classification import most_likely_classes


class Inside(NamedTuple):
    """The model of keras_vit inside another one, and the models before and after it, none if it is at that end."""

    ours: keras.Model
    before: tuple = ()
    after: tuple = ()


def inside(model, attribute: str = "classify", kind: str = "model of keras_vit, see keras_vit.load") -> Inside:
    """Finds the one model of ours with this attribute: the model itself, or inside Sequential or functional models.

    Raises:
        ValueError: There is none, or several; it is called several times, or inside a model of another kind.
    """
    if isinstance(model, OuterModel):
        model = model.model
    if hasattr(model, attribute):
        return Inside(model)
    layers = [layer for layer in all_layers(model) if hasattr(layer, attribute)] if hasattr(model, "layers") else []
    expected = f"Expected a {kind}, or a Sequential or functional model around one. Received: a {type(model).__name__}"
    if len(layers) != 1:
        names = ", ".join(layer.name for layer in layers)
        raise ValueError(f"{expected} with {names} inside. Pass one of them." if layers else expected)
    (ours,) = layers
    layer = next(layer for layer in model.layers if ours in all_layers(layer))
    try:
        graph, inputs, outputs = call_of(model, layer)
        start, end = graph.inputs[0], graph.outputs[0]
        before = () if inputs is start else (keras.Model(start, inputs),)
        after = () if outputs is end else (keras.Model(outputs, end),)
    except ValueError as error:
        raise ValueError(f"{expected} with {ours.name} inside. Pass model.get_layer({ours.name!r}): {error}") from error
    inner = inside(layer, attribute, kind)
    return Inside(ours, before + inner.before, inner.after + after)


def vit_inside(model) -> Inside:
    """`inside` for a `VisionTransformer`."""
    return inside(model, "attention_maps", "VisionTransformer")


def apply(models, tensor):
    """What models return, one after the other, not in training."""
    for model in models:
        tensor = model(tensor, training=False)
    return tensor


def image_model(model):
    """A model of ours as it is, and one around it as an `OuterModel`; see `inside` for errors."""
    return model if hasattr(model, "classify") else OuterModel(model)


def classify(model, images, top: int = 5) -> list[list[tuple[str, float]]]:
    """The most likely classes of images, most likely first.

    Args:
        model: A classifier of keras_vit, or a Sequential or functional model around one, whose outputs are logits or
            end in a softmax or sigmoid.
        images: One image or a list: paths, Pillow images, or arrays of pixels in [0, 255]; a batch (B, H, W, 3) is B
            images. See `Preprocessing`.
        top: Number of classes per image, at most all.

    Returns:
        For each image a list of (class name, probability). Names are those of the model (`model.class_names`), else
        ImageNet's for 1000, 21841 and 21843 classes, else "class 0", "class 1", ... For the probabilities see
        `output_activation`.

    Raises:
        ValueError: The model has no head, one for every token, or a projection such as CLIP's; an image cannot be read;
            pixels are not in [0, 255].
        FileNotFoundError: A file does not exist.
    """
    return image_model(model).classify(images, top)


class OuterModel:
    """A Sequential or functional model around one of ours, with the attributes that `classify` and exports read.

    Input: images as the outer model takes them: prepared for ours, or pixels in [0, 255] if its layers prepare them.
    Output: that of the outer model, (B, C), logits or probabilities.

    Attributes:
        ends_in: "softmax", "sigmoid", or None for logits.
        returns_probabilities: Whether the outer model ends in a softmax or sigmoid.
    """

    def __init__(self, model):
        self.model = model
        self.ours, self.before, self.after = inside(model)
        if len(model.output_shape) != 2:
            raise ValueError(f"Expected outputs (batch, classes). Received: {model.name}, with {model.output_shape}.")
        self.num_classes = model.output_shape[-1]
        self.image_size = model.input_shape[1:3] if None not in model.input_shape[1:3] else None
        self.channels = model.input_shape[-1]
        has_own_head = any(part.weights for part in self.after)
        self.config = None if has_own_head else self.ours.config
        self.multi_label = not has_own_head and self.ours.multi_label
        self.ends_in, keeps_classes = _what_follows(self.after)
        self.returns_probabilities = self.ends_in is not None
        self.class_names = self.ours.class_names if keeps_classes and not has_own_head else None
        self.preprocessing = self._preprocessing()

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, images, training=False):
        batches = images if isinstance(images, list) else [images]
        outputs = [self.model(batch, training=training) for batch in batches]
        return outputs[0] if len(outputs) == 1 else ops.concatenate(outputs)

    def classify(self, images, top: int = 5) -> list[list[tuple[str, float]]]:
        """See `keras_vit.classify`."""
        return most_likely_classes(self, images, top)

    def preprocess(self, images):
        """Images of any size, pixels in [0, 255], as the outer model takes them; a list if it takes any size."""
        if self.image_size or not self._takes_pixels:
            return self.preprocessing(images)
        images = images if isinstance(images, (list, tuple)) else [images]
        arrays = [ops.cast(as_rgb(image, self.preprocessing.pixel_range), "float32") for image in images]
        return [array if len(array.shape) == 4 else array[None] for array in arrays]

    def _preprocessing(self):
        """How images are prepared: as for ours, but not scaled, or not cropped, where the layers before ours do it.

        Whether they scale is seen from images of one color.
        """
        own = self.ours.preprocessing
        size = self.image_size or own.image_size
        levels = np.linspace(0, 255, max(3, own.channels), dtype="float32")  # of three images, other in each channel
        colors = np.stack([np.roll(levels, i)[: own.channels] for i in range(3)])
        pixels = np.broadcast_to(colors[:, None, None], (3, *size, own.channels))
        scaled = ops.convert_to_numpy(normalize(pixels, own.mean, own.std))
        layers = [layer for model in self.before for layer in all_layers(model)]
        prepares = any(hasattr(layer, "preprocessing") for layer in layers)  # of `ImageModel.preprocess`

        def fits(images):
            found = ops.convert_to_numpy(apply(self.before, images)).mean(axis=(1, 2))
            return found.shape == colors.shape and np.allclose(found, scaled[:, 0, 0], atol=0.02)

        self._takes_pixels = prepares or not fits(scaled)
        if self._takes_pixels and not (prepares or fits(pixels)):
            raise ValueError(
                f"The layers before {self.ours.name} take neither pixels in [0, 255] nor images of "
                f"{self.ours.name}.preprocess. Begin the model by {self.ours.name}.preprocess(keras.Input((height, "
                "width, 3)))."
            )
        if self._takes_pixels:
            zeros = (0.0,) * own.channels
            own = replace(own, mean=zeros, std=(1 / 255,) * own.channels, origin="user")
        if size != own.image_size or prepares:
            own = replace(own, resize="squash", crop_fraction=1.0)
        return own.at(size)


def _what_follows(models) -> tuple[str | None, bool]:
    """The activation at the end of models after ours, and whether each output is that of the same class as before.

    Both are seen from their outputs for random inputs. A head without weights yet returns 0, which is no sum of 1.
    """
    if not models:
        return None, True
    shape = [size or 4 for size in models[0].input_shape[1:]]
    probes = 3 * np.random.default_rng(0).normal(size=(64, *shape)).astype("float32")
    outputs = ops.convert_to_numpy(ops.cast(apply(models, probes), "float32"))
    keeps_classes = outputs.shape == probes.shape and bool((outputs.argmax(-1) == probes.argmax(-1)).all())
    are_fractions = bool(((outputs >= 0) & (outputs <= 1)).all())
    sigmoid = any(_is_sigmoid(operation) for model in models for operation in operations_of(model))
    if are_fractions and np.allclose(outputs.sum(-1), 1, atol=1e-3):
        return "softmax", keeps_classes
    return "sigmoid" if are_fractions and sigmoid else None, keeps_classes


def _is_sigmoid(operation) -> bool:
    activation = getattr(operation, "activation", operation)
    return "sigmoid" in (getattr(activation, "__name__", ""), type(activation).__name__.lower())
