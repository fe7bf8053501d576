"""The integer forms of a float32 .tflite file, made by ai-edge-quantizer."""

import contextlib
import io
import logging
import tempfile
import warnings
from pathlib import Path

import tensorflow as tf
from ai_edge_quantizer import algorithm_manager, qtyping, quantizer, recipe

Operation = qtyping.TFLOperationName
Algorithm = algorithm_manager.AlgorithmName
# Weights are int8 with a scale for each output channel unless said.
DYNAMIC = ("dynamic-int8", "int4-weights")  # activations become integers within each product, as it runs
STATIC = {
    "mixed-int8": (Operation.FULLY_CONNECTED, Operation.CONV_2D),  # the rest stays float32
    "int8": (Operation.ALL_SUPPORTED,),
    "int16x8": (Operation.ALL_SUPPORTED,),
}
ACTIVATION_BITS = {"mixed-int8": 8, "int8": 8, "int16x8": 16}


def quantize(float32: bytes, name: str, ranges: dict | None = None, keep_float: tuple[str, ...] = ()) -> bytes:
    """A float32 model in another format.

    Args:
        float32: The content of a .tflite file.
        name: Of `DYNAMIC` or `STATIC`.
        ranges: For those of `STATIC`, what `calibration.activation_ranges` found.
        keep_float: Regular expressions; operations whose output has a name that matches stay in float32.

    Returns:
        The content of a .tflite file. "int8" takes and returns uint8, the others float32.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "float32.tflite"
        source.write_bytes(float32)
        work = quantizer.Quantizer(str(source))
        if name in DYNAMIC:
            work.load_quantization_recipe(recipe.dynamic_wi8_afp32())
        if name == "int4-weights":  # first and last layer stay at 8 bits, as is usual
            work.add_dynamic_config("^(?!.*head)", Operation.FULLY_CONNECTED, 4, algorithm_key=Algorithm.OCTAV)
        for operation in STATIC.get(name, ()):
            work.add_static_config(".*", operation, ACTIVATION_BITS[name], 8)
        if name in STATIC:
            for end in (Operation.INPUT, Operation.OUTPUT):
                work.update_quantization_recipe(".*", end, algorithm_key=Algorithm.NO_QUANTIZE)
        for pattern in keep_float:
            work.update_quantization_recipe(pattern, Operation.ALL_SUPPORTED, algorithm_key=Algorithm.NO_QUANTIZE)
        with _quietly():
            content = bytes(
                work.quantize(ranges, enable_progress_bar=False, enable_progress_report=False).quantized_model
            )
    return _bytes_in_and_out(content) if name == "int8" else content


def _bytes_in_and_out(content):
    """uint8 pixels and probabilities instead of floats that the first and last operation convert."""
    from tensorflow.lite.python.util import modify_model_io_type

    return bytes(modify_model_io_type(content, tf.uint8, tf.uint8))


@contextlib.contextmanager
def _quietly():
    """Without the library's own warnings and progress bars."""
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger().setLevel(level)
