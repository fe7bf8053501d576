"""Exported classifiers, as `keras-vit classify` runs them. B images, C classes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

UNKNOWN_ORIGIN = "has no preprocessing.json, by which images are prepared. Expected a model of `keras-vit export`."


class Classifier(NamedTuple):
    """A .tflite file or a SavedModel of `keras-vit export`.

    Attributes:
        probabilities: Images, see `Preprocessing`, to (B, C).
        names: One per class.
    """

    probabilities: Callable[[list], np.ndarray]
    names: list[str] | None


def is_exported(weights: str) -> bool:
    """Whether these are a .tflite file or a SavedModel."""
    return weights.endswith(".tflite") or (Path(weights) / "saved_model.pb").is_file()


def open_exported(weights: str) -> Classifier:
    """Opens a .tflite file or a SavedModel.

    Raises:
        ValueError: It was not written by keras_vit, which stores the preprocessing in it, or it is no classifier.
        OSError: It cannot be read.
    """
    return _open_tflite(weights) if weights.endswith(".tflite") else _open_saved_model(Path(weights))


def _open_tflite(file):
    from keras_vit import Preprocessing
    from keras_vit.export.names import CLASSIFY
    from keras_vit.export.tflite.graph import run_tflite
    from keras_vit.export.tflite.metadata import read_description
    from keras_vit.pixel_range import warn_if_assumed

    described = read_description(file)
    about = described.description
    if not about.preprocessing:
        raise ValueError(f"{file} {UNKNOWN_ORIGIN}")
    if CLASSIFY not in described.signatures:
        raise ValueError(f"{file} is no classifier. Expected a file with the signature {CLASSIFY!r}.")
    preprocessing = Preprocessing.from_config(about.preprocessing, file)
    warn_if_assumed(file, preprocessing)
    return Classifier(lambda images: run_tflite(file, preprocessing.pixels(images))[0], about.class_names)


def _open_saved_model(folder):
    import tensorflow as tf

    from keras_vit import Preprocessing
    from keras_vit.export.names import CLASS_NAMES_FILE, CLASSIFY, INPUT, OUTPUTS, PREPROCESSING_FILE
    from keras_vit.pixel_range import warn_if_assumed

    file = folder / "assets.extra" / PREPROCESSING_FILE
    if not file.is_file():
        raise ValueError(f"{folder} {UNKNOWN_ORIGIN}")
    preprocessing = Preprocessing.from_config(json.loads(file.read_text("utf-8")), file)
    warn_if_assumed(folder, preprocessing)
    labels = folder / "assets" / CLASS_NAMES_FILE
    loaded = tf.saved_model.load(str(folder))  # its variables live only as long as this object
    if CLASSIFY not in loaded.signatures:
        raise ValueError(f"{folder} is no classifier. Expected a SavedModel with the signature {CLASSIFY!r}.")

    def probabilities(images):
        return loaded.signatures[CLASSIFY](**{INPUT: tf.constant(preprocessing(images))})[OUTPUTS[CLASSIFY]].numpy()

    return Classifier(probabilities, labels.read_text("utf-8").splitlines() if labels.is_file() else None)
