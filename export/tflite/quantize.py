"""Quantizes a float32 .tflite file with litert-quantizer, all of it or without some parts of the model.

In 8-bit files, litert-quantizer 0.11 leaves ELU and REDUCE_MAX in float, between two conversions, and unread outputs of
a SPLIT. `use_integer_operations` quantizes them.
"""

import contextlib
import io
import logging
import re
import warnings
from collections import defaultdict

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from litert_quantizer import algorithm_manager, qtyping, quantizer, recipe

from keras_vit.export.names import ATTENTION_PROJECTIONS, HEAD, NORM, PATCHES, ROTATE_BACK, VALUES
from keras_vit.export.tflite.calibration import Float32File
from keras_vit.export.tflite.flatbuffer import MIN_RUNTIME, operator_code, operators_of_kind, unpack_model
from keras_vit.export.tflite.ranges import integer_ranges
from keras_vit.export.tflite.request import DYNAMIC, INT4, STATIC, any_of

_Code = schema.BuiltinOperator
Operation = qtyping.TFLOperationName
Algorithm = algorithm_manager.AlgorithmName
# Weights are int8 with one scale per output channel; those of 4 bits have one per _BLOCK inputs of an output channel.
_BLOCK = 32  # the smallest of XNNPACK and litert-quantizer
_ACTIVATION_BITS = {"mixed-int8": 8, "int8": 8, "int16x8": 16}
# Dtypes of the inputs of FULLY_CONNECTED and GELU -> version of FULLY_CONNECTED that an older runtime rejects, and the
# first TensorFlow with the kernel (LiteRT's op_version.cc and runtime_version.cc). Older ones ignore the scales of
# channels and return noise. Blocks of 4 bits have no version of their own, but came with version 14: of TensorFlow 2.20
# and LiteRT 1.0, 1.4, 2.0.3, 2.1, only 2.1 computes them. LiteRT 1.0 has no GELU of 16 bits (an error), 1.4 has.
_Type = schema.TensorType
_NEW_KERNELS = {
    (_Type.FLOAT32, _Type.INT8): (12, b"2.17.0"),
    (_Type.FLOAT32, _Type.INT4): (14, b"2.21.0"),
    (_Type.INT16,): (1, b"2.20.0"),
}
_SQUARES = (_Code.SQUARE, _Code.SQUARED_DIFFERENCE)
_SUMS = (_Code.ADD, _Code.SUB, _Code.MUL, _Code.MEAN, _Code.SUM)
_OF_VARIANCES = (*_SQUARES, *_SUMS, _Code.RSQRT, _Code.SQRT, _Code.MAXIMUM, _Code.RESHAPE)


def quantize(float32: Float32File, name: str, keep_float: tuple[str, ...] = ()) -> schema.ModelT:
    """Converts a float32 model to an integer format.

    Args:
        float32: The file, for `STATIC` with images.
        name: A format of `DYNAMIC` or `STATIC`.
        keep_float: Regular expressions; operations whose output name matches one stay in float32.

    Returns:
        The model, see `unpack_model`. Input and output are uint8 for "int8", unless `keep_float` matches them, and
        float32 for the other formats.
    """
    work = quantizer.Quantizer(bytearray(float32.content))
    if name in (*DYNAMIC, "mixed-int8"):
        work.load_quantization_recipe(recipe.dynamic_wi8_afp32())
        # XNNPACK has no depthwise convolution of float activations and integer weights, and these weights are few.
        work.update_quantization_recipe(".*", Operation.DEPTHWISE_CONV_2D, algorithm_key=Algorithm.NO_QUANTIZE)
    if name in ("dynamic-int8", "mixed-int8"):
        # NPUs run matrix products of float activations and 8-bit weights, but no convolution.
        work.update_quantization_recipe(any_of([PATCHES]), Operation.CONV_2D, algorithm_key=Algorithm.NO_QUANTIZE)
    if name == INT4:  # First and last layer stay at 8 bits, as is usual, and so do the projections of attention
        # (1/12 of the weights that cause a third of the error of DINOv2-S).
        granularity = _granularity(float32.model)
        inner = f"^(?!.*{any_of([HEAD, ATTENTION_PROJECTIONS, ROTATE_BACK])})"
        work.add_dynamic_config(inner, Operation.FULLY_CONNECTED, 4, granularity, Algorithm.OCTAV)
    ranges = None
    if name in STATIC:
        # Of mixed-int8, only the products of queries and keys; the rest as in dynamic-int8.
        operations = Operation.BATCH_MATMUL if name == "mixed-int8" else Operation.ALL_SUPPORTED
        work.add_static_config(".*", operations, _ACTIVATION_BITS[name], 8)
        ranges = integer_ranges(float32, name)
        for end in (Operation.INPUT, Operation.OUTPUT):
            work.update_quantization_recipe(".*", end, algorithm_key=Algorithm.NO_QUANTIZE)
    if name == "mixed-int8":
        # Attention weights are small: with steps for the largest of them, most would become 0.
        work.update_quantization_recipe(any_of([VALUES]), Operation.BATCH_MATMUL, algorithm_key=Algorithm.NO_QUANTIZE)
    if name == "int16x8":
        # A variance is a square: with steps for its whole range, small ones, whose inverse root matters, become 0.
        for operation in _variances(float32.model):
            pattern = f"^{re.escape(operation)}(;|$)"
            work.update_quantization_recipe(pattern, Operation.ALL_SUPPORTED, algorithm_key=Algorithm.NO_QUANTIZE)
        work.update_quantization_recipe(any_of([NORM]), Operation.ALL_SUPPORTED, algorithm_key=Algorithm.NO_QUANTIZE)
        # The converter names a matrix product after the normalization that it folded into it.
        work.add_static_config(any_of([NORM]), Operation.FULLY_CONNECTED, _ACTIVATION_BITS[name], 8)
    for pattern in keep_float:
        work.update_quantization_recipe(pattern, Operation.ALL_SUPPORTED, algorithm_key=Algorithm.NO_QUANTIZE)
    with _quiet():
        result = work.quantize(ranges, enable_progress_bar=False, enable_progress_report=False)
    model = unpack_model(result.quantized_model)
    _fit_biases(model, float32.model)
    if name == "int8":
        use_integer_operations(model)
        _use_uint8_ends(model)
    _reject_old_runtimes(model)
    return model


def _fit_biases(model, float32):
    """Gives weights larger steps where biases, of 32 bits in steps of input times weight, would overflow, in place.

    As where a batch normalization with a small gamma was folded into a convolution: litert-quantizer clips such biases.
    """
    codes = (_Code.FULLY_CONNECTED, _Code.CONV_2D, _Code.DEPTHWISE_CONV_2D)
    layers, originals = (
        [found for code in codes for found in operators_of_kind(part, code)] for part in (model, float32)
    )
    for (graph, layer), (before, original) in 2 * list(zip(layers, originals, strict=True)):  # layers may share weights
        entry, weight, bias = (graph.tensors[index] for index in (*layer.inputs, -1)[:3])
        if layer.inputs[-1] < 0 or bias.type not in (_Type.INT32, _Type.INT64):
            continue
        weights, biases = (
            float32.buffers[before.tensors[index].buffer].data.view("float32") for index in original.inputs[1:3]
        )
        (step,), axis = entry.quantization.scale, weight.quantization.quantizedDimension
        scales = np.maximum(weight.quantization.scale, np.abs(biases) / step / 2**30).astype("float32")
        if np.allclose(bias.quantization.scale, step * scales, rtol=1e-5, atol=0):
            continue
        integers = np.moveaxis(np.rint(np.moveaxis(weights.reshape(weight.shape), axis, -1) / scales), -1, axis)
        model.buffers[weight.buffer].data = np.clip(integers, -127, 127).astype("int8").ravel().view("uint8")
        dtype = "int32" if bias.type == _Type.INT32 else "int64"
        model.buffers[bias.buffer].data = np.rint(biases / step / scales).astype(dtype).view("uint8")
        weight.quantization.scale, bias.quantization.scale = scales, (step * scales).astype("float32")


def _variances(model) -> list[str]:
    """Names of the operations from squares to roots of their sums, in any network."""
    names = []
    for graph in model.subgraphs:
        producers = {int(output): operator for operator in graph.operators for output in operator.outputs}
        waiting = [
            output for output in producers if operator_code(model, producers[output]) in (_Code.RSQRT, _Code.SQRT)
        ]
        while waiting:
            operator = producers.pop(waiting.pop(), None)
            code = operator and operator_code(model, operator)
            if code not in _OF_VARIANCES:
                continue
            names.append(graph.tensors[operator.outputs[0]].name.decode())
            if code != _Code.MUL or len({*operator.inputs}) > 1:
                waiting += [] if code in _SQUARES else map(int, operator.inputs)
    return names


def _reject_old_runtimes(model):
    """Sets the version of FULLY_CONNECTED and the oldest runtime; litert-quantizer leaves those of the float file."""
    versions, runtimes = set(), set()
    for code in (_Code.FULLY_CONNECTED, _Code.GELU):
        for graph, operator in operators_of_kind(model, code):
            types = tuple(graph.tensors[index].type for index in operator.inputs[:2])
            if types in _NEW_KERNELS:
                version, runtime = _NEW_KERNELS[types]
                versions.add(version)
                runtimes.add(runtime)
    if not runtimes:
        return
    for code in model.operatorCodes:
        if code.builtinCode == _Code.FULLY_CONNECTED:
            code.version = max(code.version, *versions)
    (buffer,) = (entry.buffer for entry in model.metadata if entry.name == MIN_RUNTIME)
    model.buffers[buffer].data = np.frombuffer(max(runtimes).ljust(16, b"\0"), "uint8")


def _granularity(float32):
    """One scale for `_BLOCK` inputs of an output, or for all if their number is no multiple in some layer."""
    products = operators_of_kind(float32, _Code.FULLY_CONNECTED)
    if any(graph.tensors[product.inputs[1]].shape[1] % _BLOCK for graph, product in products):
        return qtyping.QuantGranularity.CHANNELWISE
    return qtyping.QuantGranularity.BLOCKWISE_32


def use_integer_operations(model: schema.ModelT):
    """Replaces DEQUANTIZE, ELU or REDUCE_MAX, QUANTIZE by the operation on integers, in place.

    All outputs of a SPLIT become equal. Float tensors that no operation uses any more are removed.
    """
    (graph,) = model.subgraphs
    producers = {int(output): operator for operator in graph.operators for output in operator.outputs}
    consumers = defaultdict(list)
    for operator in graph.operators:
        for index in operator.inputs:
            consumers[int(index)].append(operator)
    _quantize_unread_outputs(model, graph, consumers)
    removed: list = []
    for operator in graph.operators:
        code = operator_code(model, operator)
        if code not in (_Code.ELU, _Code.REDUCE_MAX):
            continue
        before, after = producers.get(int(operator.inputs[0])), consumers[int(operator.outputs[0])]
        if before is None or operator_code(model, before) != _Code.DEQUANTIZE:
            continue  # stays in float
        if [operator_code(model, reader) for reader in after] != [_Code.QUANTIZE]:
            continue
        readers = consumers[int(before.outputs[0])]
        readers.remove(operator)
        removed += [] if readers else [before]
        operator.inputs = np.array([before.inputs[0], *operator.inputs[1:]], "int32")
        if code == _Code.REDUCE_MAX:  # the kernel compares integers: the QUANTIZE changes their scale, or is not needed
            source, maximum = graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]]
            maximum.type, maximum.quantization = source.type, source.quantization
            model.operatorCodes[operator.opcodeIndex].version = 2  # the first with integers (TFLite's op_version.cc)
            if not _same_scale(maximum, graph.tensors[after[0].outputs[0]]):
                continue
        operator.outputs = np.array(after[0].outputs, "int32")
        removed += after
    graph.operators = [operator for operator in graph.operators if not any(operator is other for other in removed)]
    _remove_unused_tensors(model, graph)


def _same_scale(*tensors) -> bool:
    return len({(*tensor.quantization.scale, *tensor.quantization.zeroPoint) for tensor in tensors}) == 1


def _quantize_unread_outputs(model, graph, consumers):
    """Gives unread outputs of a SPLIT its input's type: an attention map does not read the last block's values."""
    for _, split in operators_of_kind(model, _Code.SPLIT):
        source = graph.tensors[split.inputs[1]]
        for tensor in (graph.tensors[index] for index in split.outputs if not consumers[int(index)]):
            tensor.type, tensor.quantization = source.type, source.quantization


def _remove_unused_tensors(model, graph):
    ends = [end for reader in (graph, *graph.operators) for end in (reader.inputs, reader.outputs)]
    used = sorted({int(index) for end in ends for index in end if index >= 0})
    places = {old: new for new, old in enumerate(used)}
    for reader in (graph, *graph.operators):
        reader.inputs, reader.outputs = (
            np.array([places.get(int(index), -1) for index in end], "int32") for end in (reader.inputs, reader.outputs)
        )
    for signature in model.signatureDefs or ():
        for tensor in (*signature.inputs, *signature.outputs):
            tensor.tensorIndex = places[tensor.tensorIndex]
    graph.tensors = [graph.tensors[index] for index in used]


def _use_uint8_ends(model):
    """Makes input and output uint8: the QUANTIZE and DEQUANTIZE at the ends requantize between integers instead."""
    (graph,) = model.subgraphs
    codes = [code.builtinCode for code in model.operatorCodes]
    for end in (graph.inputs[0], graph.outputs[0]):
        operators = [operator for operator in graph.operators if end in (*operator.inputs, *operator.outputs)]
        if len(operators) > 1 or codes[operators[0].opcodeIndex] not in (_Code.QUANTIZE, _Code.DEQUANTIZE):
            continue  # stays in float
        (operator,) = operators
        inner = operator.outputs[0] if end in operator.inputs else operator.inputs[0]
        operator.opcodeIndex = codes.index(_Code.QUANTIZE)
        operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.NONE, None
        quantization = graph.tensors[inner].quantization
        graph.tensors[end].type = schema.TensorType.UINT8
        graph.tensors[end].quantization = schema.QuantizationParametersT(
            scale=quantization.scale, zeroPoint=np.array(quantization.zeroPoint, "int64") + 128
        )


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
