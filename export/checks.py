"""Checks of what all exports are given: the model, images, class names. n images, H W pixels."""

from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_vit.class_names import checked_lines
from keras_vit.models.classification import check_no_projection, known_names
from keras_vit.models.outer_model import OuterModel, image_model


def exportable(model, what: str):
    """The model, or an `OuterModel` around it, see `image_model`.

    Raises:
        ValueError: The model is not of keras_vit, or cannot be traced with a fixed image size; `what` begins the
            message.
    """
    model = image_model(model)
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{what} requires Keras's TensorFlow backend. Received: {keras.backend.backend()}. Save the model as "
            ".keras and export it with the environment variable KERAS_BACKEND=tensorflow."
        )
    if model.image_size is None:
        fix = "Build it with keras.Input((height, width, 3))" if isinstance(model, OuterModel) else "model.resized(224)"
        raise ValueError(f"{model.name} takes images of any size. Choose one: {fix}.")
    return model


def check_classifier(model):
    """Raises ValueError if a model with a head returns more than one vector per image."""
    shape = model.compute_output_shape((None, *model.image_size, model.channels))
    if model.num_classes and len(shape) != 2:
        raise ValueError(
            f"Expected a classifier that returns (batch, classes). Received: {model.name}, which returns {shape}. "
            "Build it with a pooling, or export its tokens: model.with_head(0)."
        )


def check_pooled(model):
    """Raises ValueError if a model, with or without a head, returns more than one vector per image."""
    shape = model.compute_output_shape((1, *model.image_size, model.channels))
    if len(shape) != 2:
        raise ValueError(
            f"{model.name} returns {shape}, one vector per token. Build it with pooling='token', 'gap' or 'map'."
        )


def checked_images(images, model, what: str, min_images: int = 1) -> np.ndarray:
    """Images of the model's size, (n, H, W, 3) or of its channels, float32 in [0, 255]."""
    shape = (*model.image_size, model.channels)
    if images is None or np.ndim(images) != 4 or len(images) < min_images or np.shape(images)[1:] != shape:
        raise ValueError(
            f"{what} at least {min_images} images (n, {', '.join(map(str, shape))}), pixels in [0, 255]. "
            f"Received: {'none' if images is None else np.shape(images)}"
        )
    images = np.asarray(images, "float32")
    low, high = images.min(), images.max()
    if not (low >= 0 and 1 < high <= 255):  # also rejects NaN
        raise ValueError(
            f"{what} pixels in [0, 255], not yet scaled by `model.preprocess`; clip the overshoot of bicubic "
            f"resizing. Received: values between {low:.7g} and {high:.7g}."
        )
    return images


def checked_class_names(class_names: Sequence, num_classes: int) -> list[str]:
    """The names of a model's classes; of (WordNet id, name) pairs the names, which may repeat, as ImageNet's do."""
    if isinstance(class_names, str):
        raise ValueError(f"`class_names` must name each of the {num_classes} classes. Received: a str, {class_names!r}")
    names = [name[1] if isinstance(name, (tuple, list)) and len(name) == 2 else name for name in class_names]
    if len(names) != num_classes:
        raise ValueError(f"`class_names` must name each of the {num_classes} classes. Received: {len(names)} names")
    return checked_lines(names)


def exported_class_names(model, class_names: Sequence | None, classifies: bool = False) -> list[str] | None:
    """The given names, see `checked_class_names`; by default those of `keras_vit.classify`, None if unknown.

    Raises a ValueError if classes are named or `classifies`, but the head is a projection.
    """
    if classifies or class_names is not None:
        check_no_projection(model)
    names = known_names(model) if class_names is None else class_names
    return None if names is None else checked_class_names(names, model.num_classes)


def check_new_folder(folder: Path):
    """Raises ValueError unless a folder is missing or empty."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{folder.absolute()} already exists. Remove it or choose another folder.")
