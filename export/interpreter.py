"""Runs a .tflite file as a phone does: LiteRT's interpreter, one picture at a time. H W pixels."""

import time

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.saved_model import INPUT, OUTPUT, SIGNATURE


def run_tflite(path, images, num_threads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Classifies pictures with a file of `write_tflite`, (n, H, W, 3) float32 in the model's range.

    Returns:
        Probabilities (n, num_classes) float32 and the time of each call in milliseconds, (n,) float64.
    """
    interpreter = Interpreter(model_path=str(path), num_threads=num_threads)
    runner = interpreter.get_signature_runner(SIGNATURE)
    into, out = runner.get_input_details()[INPUT], runner.get_output_details()[OUTPUT]
    probabilities, milliseconds = [], []
    for image in images:
        tensor = _quantized(image[None], into)
        start = time.perf_counter()
        result = runner(**{INPUT: tensor})[OUTPUT]
        milliseconds.append((time.perf_counter() - start) * 1e3)
        probabilities.append(_dequantized(result[0], out))
    return np.stack(probabilities), np.array(milliseconds)


def _quantized(values, details):
    if details["dtype"] == np.float32:
        return values.astype("float32")
    scale, zero_point = details["quantization"]
    limits = np.iinfo(details["dtype"])
    return np.clip(np.round(values / scale) + zero_point, limits.min, limits.max).astype(details["dtype"])


def _dequantized(values, details):
    if details["dtype"] == np.float32:
        return values
    scale, zero_point = details["quantization"]
    return (values.astype("float32") - zero_point) * np.float32(scale)
