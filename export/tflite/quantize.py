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
from collections.abc import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from litert_quantizer import algorithm_manager, qtyping, quantizer, recipe

from keras_vit.export.tflite.arithmetic import ROTATE_BACK
from keras_vit.export.tflite.flatbuffer import MIN_RUNTIME, operator_code, operators_of_kind, unpack_model
from keras_vit.export.tflite.graph_rewrite import VALUES, encoder_blocks

_Code = schema.BuiltinOperator
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
ALL_ELSE = "all else"  # pixels, patches, the last normalization


def quantize(float32: bytes, name: str, ranges: dict | None = None, keep_float: tuple[str, ...] = ()) -> schema.ModelT:
    """Converts a float32 model to an integer format.

    Args:
        float32: The content of a .tflite file.
        name: A format of `DYNAMIC` or `STATIC`.
        ranges: For `STATIC`, the result of `calibration.activation_ranges`.
        keep_float: Regular expressions; operations whose output name matches one stay in float32.

    Returns:
        The model, see `unpack_model`. Input and output are uint8 for "int8", unless `keep_float` matches them, and
        float32 for the other formats.
    """
    work = quantizer.Quantizer(bytearray(float32))
    if name in (*DYNAMIC, "mixed-int8"):
        work.load_quantization_recipe(recipe.dynamic_wi8_afp32())
        # XNNPACK has no depthwise convolution of float activations and integer weights, and these weights are few.
        work.update_quantization_recipe(".*", Operation.DEPTHWISE_CONV_2D, algorithm_key=Algorithm.NO_QUANTIZE)
    if name in ("dynamic-int8", "mixed-int8"):
        # NPUs run matrix products of float activations and 8-bit weights, but no convolution.
        work.update_quantization_recipe(PATCHES, Operation.CONV_2D, algorithm_key=Algorithm.NO_QUANTIZE)
    if name == INT4:  # First and last layer stay at 8 bits, as is usual, and so do the projections of attention
        # ("MatMul"), 1/12 of the weights that cause a third of the error of DINOv2-S.
        granularity = _granularity(float32)
        inner = f"^(?!.*(head|attention/MatMul|{ROTATE_BACK}))"
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
        result = work.quantize(ranges, enable_progress_bar=False, enable_progress_report=False)
    model = unpack_model(result.quantized_model)
    if name == "int8":
        use_integer_operations(model)
        _use_uint8_ends(model)
    _reject_old_runtimes(model)
    return model


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
    products = operators_of_kind(unpack_model(float32), _Code.FULLY_CONNECTED)
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
        operator.inputs = np.array([before.inputs[0], *operator.inputs[1:]], "int32")
        operator.outputs = np.array(after[0].outputs, "int32")
        if code == _Code.REDUCE_MAX:  # the kernel compares integers
            graph.tensors[operator.outputs[0]].quantization = graph.tensors[operator.inputs[0]].quantization
            model.operatorCodes[operator.opcodeIndex].version = 2  # the first with integers (TFLite's op_version.cc)
        removed += after if readers else [before, *after]
    graph.operators = [operator for operator in graph.operators if not any(operator is other for other in removed)]
    _remove_unused_tensors(model, graph)


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
    first = next(operator for operator in graph.operators if operator.inputs[0] in graph.inputs)
    last = next(operator for operator in graph.operators if operator.outputs[0] in graph.outputs)
    for operator, end, inner in ((first, first.inputs[0], first.outputs[0]), (last, last.outputs[0], last.inputs[0])):
        if codes[operator.opcodeIndex] not in (_Code.QUANTIZE, _Code.DEQUANTIZE):
            continue  # stays in float
        operator.opcodeIndex = codes.index(_Code.QUANTIZE)
        operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.NONE, None
        quantization = graph.tensors[inner].quantization
        graph.tensors[end].type = schema.TensorType.UINT8
        graph.tensors[end].quantization = schema.QuantizationParametersT(
            scale=quantization.scale, zeroPoint=np.array(quantization.zeroPoint, "int64") + 128
        )


def part_names(model) -> list[str]:
    """Attention and MLP of each block, such as "block_3/mlp", "head" and "all else"."""
    branches = ("attention", "mlp")
    blocks = [f"{block.name}/{branch}" for block in encoder_blocks(model) for branch in branches]
    return [*blocks, *["head"] * bool(model.num_classes), ALL_ELSE]


def operations_of(model, parts: Sequence[str]) -> tuple[str, ...]:
    """Regular expressions, one of which matches the name of each operation of these parts, for `quantize`."""
    if isinstance(parts, str):
        raise ValueError(f"`keep_float` must be a list. Received: the string {parts!r}. Pass keep_float=[{parts!r}]")
    names = part_names(model)
    if unknown := [part for part in parts if part not in names]:
        raise ValueError(f"Parts of {model.name}: {', '.join(names)}. Received: {', '.join(unknown)}")
    return tuple(f".*{_any_of([part])}.*" if part != ALL_ELSE else f"^(?!.*{_any_of(names[:-1])}).*" for part in parts)


def all_but(model, part: str) -> tuple[str, ...]:
    """The same for the operations of all other parts."""
    return (f".*{_any_of(part_names(model)[:-1])}.*" if part == ALL_ELSE else f"^(?!.*{_any_of([part])}).*",)


def _any_of(names):
    return f"({'|'.join(map(re.escape, names))})"


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
