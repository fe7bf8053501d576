"""Runs exported models beside the Keras model on the same pictures. n pictures, H W pixels."""

import time
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_vit.export.interpreter import run_tflite
from keras_vit.export.saved_model import INPUT, OUTPUT, SIGNATURE


@dataclass(frozen=True)
class Parity:
    """How an exported model compares with the Keras model.

    Args:
        name: Of the artefact.
        accuracy: Top-1, in [0, 1].
        agreement: Share of the pictures with the same top-1 as Keras, in [0, 1].
        max_difference, mean_difference: Of the probabilities, absolute.
        size_bytes: On disk.
        median_ms: Median time of a picture alone, milliseconds.
    """

    name: str
    accuracy: float
    agreement: float
    max_difference: float
    mean_difference: float
    size_bytes: int
    median_ms: float


def check_parity(model, artefacts: dict[str, Path], images, labels, num_threads: int = 2) -> list[Parity]:
    """Compares artefacts with the model they were made from, picture by picture.

    Args:
        model: The `VisionTransformer`.
        artefacts: Name to file or folder: .keras, .tflite, or a SavedModel of `write_saved_model`.
        images: (n, H, W, 3) float32 in the model's range.
        labels: (n,) integers.
        num_threads: Of the interpreter.
    """
    images, labels = np.asarray(images, "float32"), np.asarray(labels)
    if not len(images) or len(images) != len(labels):
        raise ValueError(
            f"Parity needs as many labels as pictures, at least one. Received: {len(images)}, {len(labels)}"
        )
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(model.predict(images, verbose=0)))
    rows = []
    for name, path in artefacts.items():
        probabilities, milliseconds = _run(Path(path), images, num_threads)
        difference = np.abs(probabilities - expected)
        rows.append(
            Parity(
                name=name,
                accuracy=float((probabilities.argmax(-1) == labels).mean()),
                agreement=float((probabilities.argmax(-1) == expected.argmax(-1)).mean()),
                max_difference=float(difference.max()),
                mean_difference=float(difference.mean()),
                size_bytes=_size(Path(path)),
                median_ms=float(np.median(milliseconds)),
            )
        )
    return rows


def _run(path: Path, images, num_threads):
    if path.suffix == ".tflite":
        return run_tflite(path, images, num_threads)
    if path.suffix == ".keras":
        model = keras.saving.load_model(path, compile=False)
        call = tf.function(lambda images: tf.nn.softmax(tf.cast(model(images, training=False), tf.float32)))
    else:
        loaded = tf.saved_model.load(str(path))  # its variables live as long as it does
        call = lambda images: loaded.signatures[SIGNATURE](**{INPUT: images})[OUTPUT]  # noqa: E731
    probabilities, milliseconds = [], []
    for image in images:
        start = time.perf_counter()
        probabilities.append(call(tf.constant(image[None])).numpy()[0])
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return np.stack(probabilities), np.array(milliseconds)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
