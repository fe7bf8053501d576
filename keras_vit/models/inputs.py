"""Checks of what a model receives, before a mistake becomes an unrelated error. B batch, H W pixels."""

from dataclasses import replace

import keras
from keras import ops

from keras_vit.keras_internals import all_layers, is_quantized
from keras_vit.pixel_range import expected_range
from keras_vit.preprocessing import Preprocessing


def check_images(images, preprocessing: Preprocessing, image_size=None, fix=""):
    """Raises a ValueError unless these are a batch of float images (B, H, W, 3) of a size that the model takes.

    Args:
        images: The model's input, symbolic or not.
        preprocessing: The model's.
        image_size: (height, width) that the model takes; None for any.
        fix: How to handle images of another size; `{size}` in it is replaced by their size.
    """
    shape = getattr(images, "shape", None)
    if getattr(shape, "rank", 0) is None:
        sides = ", ".join(map(str, image_size or ("height", "width")))
        raise ValueError(
            "Expected a batch of images, (B, H, W, 3). Received: a tensor of unknown rank, as tf.py_function returns. "
            f"Set its shape by tf.ensure_shape(image, ({sides}, 3)) before the images are batched."
        )
    if shape is None or len(shape) != 4:
        received = type(images).__name__ if shape is None else f"the shape {tuple(shape)}"
        raise ValueError(
            f"Expected a batch of images, (B, H, W, 3). Received: {received}. Add a batch axis to one image: "
            "images[None]; stack a list: numpy.stack(images)."
        )
    if shape[3] not in (3, None):
        raise ValueError(
            f"Expected RGB images, (B, H, W, 3). Received: the shape {tuple(shape)}. Convert gray images by "
            "numpy.repeat(images, 3, axis=-1), and (B, 3, H, W) by numpy.moveaxis(images, 1, -1)."
        )
    dtype = keras.backend.standardize_dtype(images.dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            f"Expected float pixels {expected_range(preprocessing)}. Received: {dtype}. Use model.preprocess(images)."
        )
    size = tuple(shape[1:3])
    # A side that is not known yet may be the right one, see `checked_images`.
    if image_size and any(received not in (expected, None) for received, expected in zip(size, image_size)):
        raise ValueError(
            f"This model takes images of {image_size} pixels (height, width). Received: {size}. "
            f"Resize the images, or {fix.format(size=size)}."
        )


def checked_images(images, preprocessing: Preprocessing, image_size=None, fix=""):
    """The images (B, H, W, 3), with static height and width if the model has an image size. See `check_images`.

    Raises:
        ValueError: See `check_images`.
    """
    check_images(images, preprocessing, image_size, fix)
    if image_size is None or tuple(images.shape[1:3]) == image_size:
        return images
    # In a graph: else patches of a larger image would become more images. An image of another shape with the same
    # number of pixels still passes.
    return ops.reshape(images, (ops.shape(images)[0], *image_size, 3))


def output_spec(model, images, image_size=None, fix=""):
    """Shape and dtype of a model's output for symbolic images: logits are float32 also under mixed precision.

    The arguments are those of `check_images`; images that a call rejects are rejected here too.
    """
    check_images(images, model.preprocessing, image_size, fix)
    dtype = model.head.compute_dtype if model.head else model.compute_dtype
    shape = (images.shape[0], *(image_size or images.shape[1:3]), 3)
    return keras.KerasTensor(model.compute_output_shape(shape), dtype)


def input_shape(model) -> tuple:
    """(None, height, width, 3); None for sides of any length."""
    return (None, *(model.image_size or (None, None)), 3)


def output_shape(model) -> tuple:
    """Shape of the outputs for a batch of any size: (None, num_classes) with a head."""
    return model.compute_output_shape(input_shape(model))


def preprocessing(model) -> Preprocessing:
    """How images are prepared for the model. It is saved with it, and can be set to another `Preprocessing`."""
    return model.config.preprocessing


def set_preprocessing(model, given):
    """Takes what a model's argument `preprocessing` takes; the image size remains the model's."""
    known = model.config.preprocessing
    model.config = replace(model.config, preprocessing=Preprocessing.from_argument(given, known.image_size, known))


def check_not_quantized(model):
    """Raises a ValueError for a model that Keras quantized: a model built from its config has other weights."""
    if any(map(is_quantized, all_layers(model))):
        raise ValueError(
            f"{model.name} was quantized by Keras, which its config does not record. Change, export or save the model "
            "before quantize(). To keep a quantized model, save its weights by model.save_weights('name.weights.h5'), "
            "and load them into a new model after its quantize()."
        )
