"""Quantizes a float32 .tflite file with litert-quantizer."""

import contextlib
import io
import logging
import tempfile
import warnings
from pathlib import Path

from ai_edge_litert import schema_py_generated as schema
from litert_quantizer import algorithm_manager, qtyping, quantizer, recipe

from keras_vit.atomic_write import naming_full_disk
from keras_vit.export.tflite.flatbuffer import pack_model, unpack_model
from keras_vit.export.tflite.graph_rewrite import ROTATE_BACK, VALUES
from keras_vit.export.tflite.integer_ops import with_integer_operations

Operation = qtyping.TFLOperationName
Algorithm = algorithm_manager.AlgorithmName
# Weights are int8 with one scale per output channel; those of 4 bits have one per _BLOCK inputs of an output channel.
_BLOCK = 32  # the smallest of XNNPACK and litert-quantizer
INT4 = "int4-weights"
PATCHES = "patch_embedding"  # the convolution that embeds them
DYNAMIC = ("dynamic-int8", INT4)  # activations are quantized at run time, within each matrix product
STATIC = {
    "mixed-int8": (Operation.BATCH_MATMUL,),  # of queries and keys; the rest as in dynamic-int8
    "int8": (Operation.ALL_SUPPORTED,),
    "int16x8": (Operation.ALL_SUPPORTED,),
}
ACTIVATION_BITS = {"mixed-int8": 8, "int8": 8, "int16x8": 16}


def quantize(float32: bytes, name: str, ranges: dict | None = None, keep_float: tuple[str, ...] = ()) -> bytes:
    """Converts a float32 model to an integer format.

    Args:
        float32: The content of a .tflite file.
        name: A format of `DYNAMIC` or `STATIC`.
        ranges: For `STATIC`, the result of `calibration.activation_ranges`.
        keep_float: Regular expressions; operations whose output name matches one stay in float32.

    Returns:
        The content of a .tflite file. Input and output are uint8 for "int8", unless `keep_float` matches them, and
        float32 for the other formats.
    """
    with tempfile.TemporaryDirectory() as folder, naming_full_disk(tempfile.gettempdir()):
        source = Path(folder) / "float32.tflite"
        source.write_bytes(float32)
        work = quantizer.Quantizer(str(source))
        if name in (*DYNAMIC, "mixed-int8"):
            work.load_quantization_recipe(recipe.dynamic_wi8_afp32())
            # Of float activations and 8-bit weights, NPUs run matrix products, but no convolution.
            work.update_quantization_recipe(PATCHES, Operation.CONV_2D, algorithm_key=Algorithm.NO_QUANTIZE)
        if name == INT4:  # first and last layer stay at 8 bits, as is usual
            granularity = _granularity(float32)
            inner = f"^(?!.*(head|{ROTATE_BACK}))"
            work.add_dynamic_config(inner, Operation.FULLY_CONNECTED, 4, granularity, Algorithm.OCTAV)
        for operation in STATIC.get(name, ()):
            work.add_static_config(".*", operation, ACTIVATION_BITS[name], 8)
        if name in STATIC:
            for end in (Operation.INPUT, Operation.OUTPUT):
                work.update_quantization_recipe(".*", end, algorithm_key=Algorithm.NO_QUANTIZE)
        if name == "mixed-int8":
            # Attention weights are small: with steps for the largest of them, most would become 0.
            work.update_quantization_recipe(VALUES, Operation.BATCH_MATMUL, algorithm_key=Algorithm.NO_QUANTIZE)
        if name == "int16x8":
            # A variance is a square: with steps for its whole range, small ones, whose inverse root matters, become 0.
            work.update_quantization_recipe("norm", Operation.ALL_SUPPORTED, algorithm_key=Algorithm.NO_QUANTIZE)
            # The converter names a matrix product after the normalization that it folded into it.
            work.add_static_config("norm", Operation.FULLY_CONNECTED, ACTIVATION_BITS[name], 8)
        for pattern in keep_float:
            work.update_quantization_recipe(pattern, Operation.ALL_SUPPORTED, algorithm_key=Algorithm.NO_QUANTIZE)
        with _quiet():
            content = bytes(
                work.quantize(ranges, enable_progress_bar=False, enable_progress_report=False).quantized_model
            )
    return _uint8_interface(with_integer_operations(content)) if name == "int8" else content


def _granularity(float32):
    """One scale for `_BLOCK` inputs of an output, or for all if their number is no multiple in some layer."""
    model = unpack_model(float32)
    codes = [code.builtinCode for code in model.operatorCodes]
    for graph in model.subgraphs:
        for one in graph.operators:
            if codes[one.opcodeIndex] == schema.BuiltinOperator.FULLY_CONNECTED:
                if graph.tensors[one.inputs[1]].shape[1] % _BLOCK:
                    return qtyping.QuantGranularity.CHANNELWISE
    return qtyping.QuantGranularity.BLOCKWISE_32


def _uint8_interface(content):
    """Makes input and output uint8: the QUANTIZE and DEQUANTIZE at the ends requantize between integers instead."""
    model = unpack_model(content)
    (graph,) = model.subgraphs
    codes = [code.builtinCode for code in model.operatorCodes]
    first = next(one for one in graph.operators if one.inputs[0] in graph.inputs)
    last = next(one for one in graph.operators if one.outputs[0] in graph.outputs)
    for operation, end, inner in ((first, first.inputs[0], first.outputs[0]), (last, last.outputs[0], last.inputs[0])):
        if codes[operation.opcodeIndex] not in (schema.BuiltinOperator.QUANTIZE, schema.BuiltinOperator.DEQUANTIZE):
            continue  # stays in float
        operation.opcodeIndex = codes.index(schema.BuiltinOperator.QUANTIZE)
        operation.builtinOptionsType, operation.builtinOptions = schema.BuiltinOptions.NONE, None
        quantization = graph.tensors[inner].quantization
        graph.tensors[end].type = schema.TensorType.UINT8
        graph.tensors[end].quantization = schema.QuantizationParametersT(
            scale=quantization.scale, zeroPoint=[int(point) + 128 for point in quantization.zeroPoint]
        )
    return pack_model(model)


@contextlib.contextmanager
def _quiet():
    """Suppresses the quantizer's warnings and progress bars."""
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger().setLevel(level)
