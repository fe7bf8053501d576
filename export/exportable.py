"""What every way out of Keras needs of a model and of images. n images, H W pixels."""

import keras
import numpy as np


def check_exportable(model, what: str):
    """Raises ValueError if a graph of fixed images cannot be made of a model; `what` would be written."""
    if not hasattr(model, "preprocessing"):
        raise ValueError(f"Expected a model of keras_vit, see keras_vit.load. Received: a {type(model).__name__}")
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{what} is written on Keras's TensorFlow backend, but this is {keras.backend.backend()}. Save the model "
            "as .keras and export it with the environment variable KERAS_BACKEND=tensorflow."
        )
    if model.image_size is None:
        raise ValueError(f"{model.name} takes images of any size; say which with model.resized(224).")


def check_classifier(model):
    """Raises ValueError if a model with a head gives more than one vector an image."""
    shape = model.compute_output_shape((None, *model.image_size, 3))
    if model.num_classes and len(shape) != 2:
        raise ValueError(
            f"A classifier gives (batch, classes), but {model.name} gives {shape}. Build it with a pooling, or export "
            "its tokens: model.with_head(0)."
        )


def check_pooled(model):
    """Raises ValueError if a model, with a head or without, gives more than one vector an image."""
    shape = model.compute_output_shape((1, *model.image_size, 3))
    if len(shape) != 2:
        raise ValueError(
            f"{model.name} gives {shape}, a vector a token. Build it with pooling='token', 'gap' or 'map'."
        )


def checked_pixels(pixels, model, what: str, at_least: int = 1) -> np.ndarray:
    """Images of a model's size, (n, H, W, 3) float32.

    Raises:
        ValueError: They are too few or of another shape, or not pixels in [0, 255]; `what` begins the sentence.
    """
    shape = (*model.image_size, 3)
    if pixels is None or np.ndim(pixels) != 4 or len(pixels) < at_least or np.shape(pixels)[1:] != shape:
        raise ValueError(
            f"{what} at least {at_least} images (n, {', '.join(map(str, shape))}), pixels in [0, 255]. "
            f"Received: {'nothing' if pixels is None else np.shape(pixels)}"
        )
    pixels = np.asarray(pixels, "float32")
    low, high = pixels.min(), pixels.max()
    if not (low >= 0 and 1 < high <= 255):  # NaN too
        raise ValueError(
            f"{what} pixels in [0, 255], before `model.preprocess` and without what a resampling overshoots. "
            f"Received values between {low:.7g} and {high:.7g}."
        )
    return pixels
