"""Runs a .tflite file as a phone does: LiteRT's interpreter, one image at a time. H W pixels."""

import time

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.tflite.device_form import CLASSIFY, INPUT, OUTPUTS


def run_tflite(path, pixels, signature: str = CLASSIFY, num_threads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Runs a file of `write_tflite` on images of its size, (n, H, W, 3), pixels in [0, 255].

    Returns:
        The signature's output for each image, (n, ...) float32, and the time of each call in milliseconds, (n,)
        float64.
    """
    interpreter = Interpreter(model_path=str(path), num_threads=num_threads)
    runner = interpreter.get_signature_runner(signature)
    output = OUTPUTS[signature]
    into, out = runner.get_input_details()[INPUT], runner.get_output_details()[output]
    results, milliseconds = [], []
    for image in np.asarray(pixels):
        tensor = (image if into["dtype"] == np.float32 else np.round(image)).astype(into["dtype"])[None]
        start = time.perf_counter()
        result = runner(**{INPUT: tensor})[output]
        milliseconds.append((time.perf_counter() - start) * 1e3)
        results.append(_dequantized(result[0], out))
    return np.stack(results), np.array(milliseconds)


def _dequantized(values, details):
    if details["dtype"] == np.float32:
        return values
    scale, zero_point = details["quantization"]
    return (values.astype("float32") - zero_point) * np.float32(scale)
