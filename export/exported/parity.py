"""Compares exported models with the Keras model on the same images. n images, H W pixels."""

import time
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_vit.atomic_write import literal_folder
from keras_vit.export.checks import check_classifier, checked_images, exportable
from keras_vit.export.exported.opening import onnx_session
from keras_vit.export.names import CLASSIFY, EMBED, INPUT, OUTPUTS, PROJECTION
from keras_vit.export.tflite.encoder import normalize
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.inspect.representation import in_batches
from keras_vit.intervals import paired_interval, wilson_interval
from keras_vit.models.classification import check_no_projection, is_projection, output_activation
from keras_vit.models.copying import float32_copy
from keras_vit.models.outer_model import image_model

MANY_IMAGES = 1000  # from here on, an image is at most 0.1 %


@dataclass(frozen=True)
class Parity:
    """Agreement of an exported model with the Keras model.

    Args:
        name: Name of the artifact.
        top1: Top-1 accuracy of the artifact, in [0, 1].
        accuracy_drop: Top-1 accuracy of Keras minus `top1`, in [-1, 1]; positive is worse than Keras.
        agreement: Fraction of the images with the same top-1 class as Keras, in [0, 1].
        cosine: Mean cosine similarity of the logits with those of Keras, in [-1, 1], see `logit_cosine`; None for
            sigmoids, whose logits differ most where the probabilities are all but equal, and for two classes.
        max_difference, mean_difference: Absolute differences of the probabilities.
        size_bytes: Size on disk.
        median_ms: Median latency of a single image, milliseconds.
        num_images: Number of images that `top1` counts.
        drop_interval, agreement_interval: 95 % intervals of `accuracy_drop` and `agreement`, see `paired_interval` and
            `wilson_interval`.
    """

    name: str
    top1: float
    accuracy_drop: float
    agreement: float
    cosine: float | None
    max_difference: float
    mean_difference: float
    size_bytes: int
    median_ms: float
    num_images: int
    drop_interval: tuple[float, float]
    agreement_interval: tuple[float, float]


@dataclass(frozen=True)
class EmbeddingParity:
    """Agreement of the embeddings of an exported model with those of the Keras model.

    Args:
        name, size_bytes, median_ms: See `Parity`.
        mean_cosine, smallest_cosine: Cosine similarity of an image's embedding with that of Keras, in [-1, 1].
    """

    name: str
    mean_cosine: float
    smallest_cosine: float
    size_bytes: int
    median_ms: float


def check_parity(model, artifacts: dict[str, Path], images, labels, num_threads: int = 2) -> list[Parity]:
    """Compares artifacts with the Keras model in float32, one image at a time.

    Args:
        model: A model with a head.
        artifacts: Name -> file or folder: .keras, .tflite of `write_tflite`, .onnx of `write_onnx`, or a SavedModel of
            `write_saved_model`.
        images: (n, H, W, 3) images of the model's size, pixels in [0, 255].
        labels: (n,) integers, or (n, num_classes) with a 1 for each correct class of an image: its top-1 class is right
            if it is one of them, and images without a correct class do not count for `top1`.
        num_threads: Threads of LiteRT's interpreter.

    Returns:
        One row per artifact, in their order.

    Raises:
        ValueError: The model has no head, a projection as head, no image size, or quantized layers. There are no
            images, or they have another size or values outside [0, 255]. The number of labels differs from that of the
            images, or all are zeros.
        ImportError: A .onnx file requires onnxruntime, which is not installed.
        FloatingPointError: Outputs of the model or of an artifact are NaN or infinite.
    """
    model = exportable(model, "A parity check")
    check_no_projection(model)
    if not model.num_classes:
        raise ValueError(f"A parity check compares probabilities, but {model.name} has no head.")
    check_classifier(model)
    images, labels = checked_images(images, model, "A parity check requires"), np.asarray(labels)
    _check_labels(labels, len(images), model.num_classes)
    inputs, activation = normalize(images, model.preprocessing).numpy(), output_activation(model)
    outputs = float32_copy(model).predict(inputs, verbose=0)
    expected = np.asarray(keras.activations.get(activation)(outputs))
    check_finite(expected, f"The model {model.name}")
    expected_correct = _correct(expected, labels)
    rows = []
    for name, path in artifacts.items():
        probabilities, milliseconds = _run(Path(path), images, inputs, num_threads, activation)
        check_finite(probabilities, f"The export {name}")
        difference = np.abs(probabilities - expected)
        correct, agreed = _correct(probabilities, labels), probabilities.argmax(-1) == expected.argmax(-1)
        rows.append(
            Parity(
                name=name,
                top1=float(correct.mean()),
                accuracy_drop=float(expected_correct.mean() - correct.mean()),
                agreement=float(agreed.mean()),
                cosine=float(logit_cosine(probabilities, expected).mean()) if has_logit_cosine(model) else None,
                max_difference=float(difference.max()),
                mean_difference=float(difference.mean()),
                size_bytes=_size(Path(path)),
                median_ms=float(np.median(milliseconds)),
                num_images=len(correct),
                drop_interval=paired_interval(expected_correct, correct),
                agreement_interval=wilson_interval(int(agreed.sum()), len(agreed)),
            )
        )
    return rows


def parity_table(rows: list[Parity]) -> str:
    """The rows as a Markdown table with 95 % intervals; the change of top-1 in percentage points, of few images also in
    images: negative for an accuracy drop.
    """
    no_cosine = any(row.cosine is None for row in rows)
    measure = "largest difference" if no_cosine else "logit cosine"
    lines = [f"| | top-1 | change | agreement | {measure} | size | median |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        measured = row.max_difference if no_cosine else row.cosine
        top1, change = f"{row.top1:.2%}", f"{0.0 - 100 * row.accuracy_drop:+.2f}"
        if row.num_images < MANY_IMAGES:
            top1 += f" ({round(row.top1 * row.num_images)} of {row.num_images})"
            change += f" ({round(-row.accuracy_drop * row.num_images):+d})"
        change += " [{:+.1f}, {:+.1f}]".format(*(0.0 - 100 * end for end in reversed(row.drop_interval)))
        agreement = "{:.2%} [{:.1f}, {:.1f}]".format(row.agreement, *(100 * end for end in row.agreement_interval))
        values = f"{top1} | {change} | {agreement} | {measured:.4f}"
        lines.append(f"| {row.name} | {values} | {row.size_bytes / 1e6:.2f} MB | {row.median_ms:.1f} ms |")
    return "\n".join(lines)


def check_embeddings(model, artifacts: dict[str, Path], images) -> list[EmbeddingParity]:
    """Compares embeddings with those of the Keras model in float32, one image at a time.

    An embedding is the features before the head, or the output of a head that is a projection, as CLIP's.

    Args:
        model, images: See `check_parity`; the model may have no head.
        artifacts: Name -> file or folder: .tflite with the signature "embed", a SavedModel, or the .onnx of a model
            without classes.

    Returns:
        One row per artifact, in their order.

    Raises:
        ValueError, ImportError, FloatingPointError: See `check_parity`.
    """
    model = exportable(model, "A parity check")
    images = checked_images(images, model, "A parity check requires")
    inputs, copy = normalize(images, model.preprocessing).numpy(), float32_copy(model)
    embed, signature = (copy, PROJECTION) if is_projection(model) else (copy.features, "features")
    expected = np.concatenate([embed(batch) for batch in in_batches(inputs, 32)])
    check_finite(expected, f"The model {model.name}")
    rows = []
    for name, path in artifacts.items():
        own = EMBED if path.suffix == ".tflite" else signature
        embeddings, milliseconds = _run(path, images, inputs, 2, None, own)
        check_finite(embeddings, f"The export {name}")
        cosine = -np.asarray(keras.losses.cosine_similarity(expected, embeddings))
        measured = float(cosine.mean()), float(cosine.min())
        rows.append(EmbeddingParity(name, *measured, _size(path), float(np.median(milliseconds))))
    return rows


def embedding_table(rows: list[EmbeddingParity]) -> str:
    """The rows as a Markdown table."""
    lines = ["| | embedding cosine | smallest cosine | size | median |", "|---|---|---|---|---|"]
    for row in rows:
        values = f"{row.mean_cosine:.4f} | {row.smallest_cosine:.4f} | {row.size_bytes / 1e6:.2f} MB"
        lines.append(f"| {row.name} | {values} | {row.median_ms:.1f} ms |")
    return "\n".join(lines)


def _check_labels(labels, num_images, num_classes):
    if labels.shape not in ((num_images,), (num_images, num_classes)):
        raise ValueError(
            f"Expected one label per image, ({num_images},), or zeros and ones, {(num_images, num_classes)}. "
            f"Received: {labels.shape}"
        )
    if labels.ndim == 2 and not labels.any():
        raise ValueError("Expected images with labels. Received: zeros only, an image without a correct class each.")


def _correct(probabilities, labels) -> np.ndarray:
    """Whether the most likely class is correct, for each image with a correct class: bool."""
    best = probabilities.argmax(-1)
    return best == labels if labels.ndim == 1 else labels[np.arange(len(best)), best][labels.any(-1)].astype(bool)


def _run(path: Path, images, inputs, num_threads, activation, signature=CLASSIFY):
    """Outputs (n, ...) and milliseconds (n,); `inputs` are the images after preprocessing."""
    if path.suffix == ".tflite":
        return run_tflite(path, images, signature, num_threads)
    if path.suffix == ".keras":
        model = keras.saving.load_model(path, compile=False)
        model = image_model(model)
        own = keras.activations.get(output_activation(model))
        call = tf.function(lambda batch: own(tf.cast(model(batch, training=False), tf.float32)))
    elif path.suffix == ".onnx":
        session = onnx_session(path)
        if session.get_inputs()[0].type == "tensor(uint8)":
            inputs = np.round(images).astype("uint8")
        apply = keras.activations.get(activation)
        call = lambda batch: apply(session.run(None, {INPUT: batch.numpy()})[0])  # noqa: E731
    else:
        with literal_folder(path) as folder:
            loaded = tf.saved_model.load(folder)  # its variables live only as long as this object
        call = lambda batch: loaded.signatures[signature](**{INPUT: batch})[OUTPUTS.get(signature, signature)]  # noqa: E731
    outputs, milliseconds = [], []
    for image in inputs:
        start = time.perf_counter()
        outputs.append(np.asarray(call(tf.constant(image[None])))[0])
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return np.stack(outputs), np.array(milliseconds)


def has_logit_cosine(model) -> bool:
    """Whether `logit_cosine` measures a model: of a softmax of several classes; of two it is 1 or -1."""
    return output_activation(model) == "softmax" and model.num_classes > 2


def logit_cosine(probabilities, expected) -> np.ndarray:
    """Cosine similarity (n,) of two models' centered logits, recovered from a softmax (n, num_classes).

    Logarithms minus their mean. Probabilities are clipped to at least 0.001, because uint8 has no smaller ones. Equal
    probabilities of all classes have no direction: 1 if both models return them, 0 if one does.
    """
    one, other = (np.log(np.maximum(x.astype("float64"), 1e-3)) for x in (probabilities, expected))
    one, other = (x - x.mean(axis=-1, keepdims=True) for x in (one, other))
    length, other_length = np.linalg.norm(one, axis=-1), np.linalg.norm(other, axis=-1)
    product, both_constant = length * other_length, (length == other_length).astype("float64")
    return np.divide((one * other).sum(axis=-1), product, out=both_constant, where=product > 0)


def check_finite(outputs, what: str):
    """Raises FloatingPointError if outputs (n, ...) are NaN or infinite; `what` begins the message."""
    if bad := int((~np.isfinite(outputs)).reshape(len(outputs), -1).any(axis=-1).sum()):
        raise FloatingPointError(
            f"{what} returns NaN or infinity for {bad} of {len(outputs)} images, so it cannot be compared: its "
            "weights are damaged or its training diverged, or its numbers overflow in this format."
        )


def _size(path: Path) -> int:
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
