"""TFLite files: float32, float16, dynamic int8 and full int8, from a SavedModel of batch 1, builtin operations only."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_vit.export.saved_model import INPUT, PREPROCESSING, SIGNATURE, write_saved_model

FORMATS = ("float32", "float16", "dynamic-int8", "int8")
# Fewer pictures give poor ranges; the converter's own guide asks for 100 to 500.
MIN_CALIBRATION_IMAGES = 20


def write_tflite(model, folder, formats: Sequence[str] = FORMATS, calibration=None) -> dict[str, Path]:
    """Converts a classifier; writes `model-<format>.tflite` for each format, and preprocessing.json.

    Every file takes one picture, (1, H, W, 3), and has the signature "classify" of `write_saved_model`. "float32",
    "float16" (weights) and "dynamic-int8" (weights) take and return float32; "int8" takes and returns uint8 with the
    quantization written in the file.

    Args:
        model: A `VisionTransformer` with a head.
        folder: Where to; made if needed.
        formats: Of `FORMATS`.
        calibration: (n, H, W, 3) float32 pictures in the model's range, needed for "int8"; about 100 to 500.

    Returns:
        The file of each format.

    Raises:
        ValueError: An unknown format, or "int8" without enough pictures of the model's size.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"`formats` must be some of {', '.join(FORMATS)}. Received: {list(formats)}")
    if "int8" in formats:
        calibration = _checked(calibration, model)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    with tempfile.TemporaryDirectory() as scratch:
        # A fixed batch lets the converter fold every shape; an open one leaves SHAPE and BROADCAST_TO in the graph.
        source = write_saved_model(model, Path(scratch) / "saved_model", batch_size=1)
        for name in formats:
            files[name] = folder / f"model-{name}.tflite"
            _write(files[name], _convert(source, name, calibration))
        _write(folder / PREPROCESSING, (source / "assets.extra" / PREPROCESSING).read_bytes())
    return files


def _convert(saved_model: Path, name: str, calibration) -> bytes:
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), signature_keys=[SIGNATURE])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if name != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if name == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if name == "int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.representative_dataset = lambda: ((SIGNATURE, {INPUT: image[None]}) for image in calibration)
        converter.inference_input_type = converter.inference_output_type = tf.uint8
    return converter.convert()


def _checked(calibration, model) -> np.ndarray:
    shape = (*model.image_size, 3)
    if calibration is None or len(calibration) < MIN_CALIBRATION_IMAGES or np.shape(calibration)[1:] != shape:
        raise ValueError(
            f"Format 'int8' needs `calibration`: at least {MIN_CALIBRATION_IMAGES} pictures "
            f"(n, {', '.join(map(str, shape))}) float32 in the model's range, best 100 to 500 of the training set. "
            f"Received: {'nothing' if calibration is None else np.shape(calibration)}"
        )
    return np.asarray(calibration, "float32")


def _write(path: Path, content: bytes):
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(content)
    os.replace(aside, path)
