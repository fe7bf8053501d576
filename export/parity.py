"""Runs exported models beside the Keras model on the same images. n images, H W pixels."""

import time
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_vit.export.exportable import check_classifier, check_exportable, checked_pixels
from keras_vit.export.onnx import onnx_session
from keras_vit.export.tflite.device_form import CLASSIFY, INPUT, OUTPUTS, float32_copy, normalized
from keras_vit.export.tflite.interpreter import run_tflite


@dataclass(frozen=True)
class Parity:
    """How an exported model compares with the Keras model.

    Args:
        name: Of the artifact.
        accuracy: Top-1, in [0, 1].
        lost: Accuracy of Keras less that, in [-1, 1].
        agreement: Share of the images with the same top-1 as Keras, in [0, 1].
        cosine: Mean cosine of the logarithms of the probabilities, each less its mean, with those of Keras, in [-1, 1].
        max_difference, mean_difference: Of the probabilities, absolute.
        size_bytes: On disk.
        median_ms: Median time of an image alone, milliseconds.
    """

    name: str
    accuracy: float
    lost: float
    agreement: float
    cosine: float
    max_difference: float
    mean_difference: float
    size_bytes: int
    median_ms: float


def check_parity(model, artifacts: dict[str, Path], pixels, labels, num_threads: int = 2) -> list[Parity]:
    """Compares artifacts with the model they were made from, in float32, image by image.

    Args:
        model: With a head.
        artifacts: Name to file or folder: .keras, .tflite, .onnx of `write_onnx`, or a SavedModel of
            `write_saved_model`.
        pixels: (n, H, W, 3) images of the model's size, pixels in [0, 255].
        labels: (n,) integers.
        num_threads: Of the interpreter.

    Returns:
        One row for each artifact, in their order.

    Raises:
        ValueError: The model has no head, no image size, or weights of LoRA; there is no image, or images of
            another size, or not pixels in [0, 255]; labels are not as many as images.
        ImportError: onnxruntime, which a .onnx file needs, is not installed.
    """
    check_exportable(model, "What parity compares")
    if not model.num_classes:
        raise ValueError(f"Parity compares probabilities, but {model.name} has no head.")
    check_classifier(model)
    pixels, labels = checked_pixels(pixels, model, "Parity needs"), np.asarray(labels)
    if labels.shape != pixels.shape[:1]:
        raise ValueError(f"Parity needs a label an image, {pixels.shape[:1]}. Received: {labels.shape}")
    images = normalized(pixels, model.preprocessing).numpy()
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(float32_copy(model).predict(images, verbose=0)))
    right = lambda probabilities: probabilities.argmax(-1) == labels  # noqa: E731
    rows = []
    for name, path in artifacts.items():
        probabilities, milliseconds = _run(Path(path), pixels, images, num_threads)
        difference = np.abs(probabilities - expected)
        rows.append(
            Parity(
                name=name,
                accuracy=float(right(probabilities).mean()),
                lost=float(right(expected).mean() - right(probabilities).mean()),
                agreement=float((probabilities.argmax(-1) == expected.argmax(-1)).mean()),
                cosine=float(logit_cosine(probabilities, expected).mean()),
                max_difference=float(difference.max()),
                mean_difference=float(difference.mean()),
                size_bytes=_size(Path(path)),
                median_ms=float(np.median(milliseconds)),
            )
        )
    return rows


def parity_table(rows: list[Parity]) -> str:
    """Rows as a table in Markdown, in the units that people compare."""
    lines = ["| | top-1 | lost, points | agreement | logit cosine | size | median |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        figures = f"{row.accuracy:.2%} | {100 * row.lost:+.2f} | {row.agreement:.2%} | {row.cosine:.4f}"
        lines.append(f"| {row.name} | {figures} | {row.size_bytes / 1e6:.2f} MB | {row.median_ms:.1f} ms |")
    return "\n".join(lines)


def _run(path: Path, pixels, images, num_threads):
    if path.suffix == ".tflite":
        return run_tflite(path, pixels, num_threads=num_threads)
    if path.suffix == ".keras":
        model = keras.saving.load_model(path, compile=False)
        call = tf.function(lambda images: tf.nn.softmax(tf.cast(model(images, training=False), tf.float32)))
    elif path.suffix == ".onnx":
        session = onnx_session(path)
        call = lambda images: tf.nn.softmax(session.run(None, {INPUT: images.numpy()})[0])  # noqa: E731
    else:
        loaded = tf.saved_model.load(str(path))  # its variables live as long as it does
        call = lambda images: loaded.signatures[CLASSIFY](**{INPUT: images})[OUTPUTS[CLASSIFY]]  # noqa: E731
    probabilities, milliseconds = [], []
    for image in images:
        start = time.perf_counter()
        probabilities.append(call(tf.constant(image[None])).numpy()[0])
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return np.stack(probabilities), np.array(milliseconds)


def logit_cosine(probabilities, expected) -> np.ndarray:
    """The cosine (n,) of two models' logits, as far as probabilities (n, num_classes) tell them.

    Logarithms less their mean; probabilities below 0.001 count as that, as uint8 does not have smaller ones.
    """
    one, other = (np.log(np.maximum(x.astype("float64"), 1e-3)) for x in (probabilities, expected))
    one, other = (x - x.mean(axis=-1, keepdims=True) for x in (one, other))
    lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    return np.divide((one * other).sum(axis=-1), lengths, out=np.ones(len(lengths)), where=lengths > 0)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
