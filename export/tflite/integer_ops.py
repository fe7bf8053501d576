"""What litert-quantizer 0.11 leaves in float in 8-bit files: ELU and REDUCE_MAX, between two conversions, and unread
parts of a SPLIT.
"""

from collections import defaultdict

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.tflite.flatbuffer import pack_model, unpack_model

_Code = schema.BuiltinOperator
_RELU6 = schema.ActivationFunctionType.RELU6
_LOWEST = -6.5  # below, e^x is less than half a step of 1 / 255


def fixed_ranges(float32: bytes, ranges: dict[str, dict]) -> dict[str, dict]:
    """The ranges, with those of `integer_forms` that no image changes.

    Exponentials are e^x for x in [-6.5, 0]. Ramps are in [0, 6]: those of a variance that is the same in all images and
    below the first point would have the range [0, 0], with which XNNPACK does not load the file.

    Args:
        float32: The content of the .tflite file that `ranges` belong to.
        ranges: See `calibration.activation_ranges`.
    """
    model = unpack_model(float32)
    codes = [code.builtinCode for code in model.operatorCodes]
    changed = dict(ranges)
    for graph in model.subgraphs:
        consumers = _consumers(graph)
        ends: dict[int, tuple[float, float]] = {}
        for one in graph.operators:
            if codes[one.opcodeIndex] == _Code.ELU:
                ends |= {int(one.inputs[0]): (_LOWEST, 0), int(one.outputs[0]): (-1, 0)}
                sums = [other for other in consumers[int(one.outputs[0])] if codes[other.opcodeIndex] == _Code.ADD]
                ends |= {int(other.outputs[0]): (0, 1) for other in sums}
            elif getattr(one.builtinOptions, "fusedActivationFunction", 0) == _RELU6:
                ends[int(one.outputs[0])] = 0, 6
        for index, (low, high) in ends.items():
            name = graph.tensors[index].name.decode()
            old = ranges[name]
            changed[name] = {"min": np.full_like(old["min"], low), "max": np.full_like(old["max"], high)}
    return changed


def with_integer_operations(content: bytes) -> bytes:
    """Replaces DEQUANTIZE, ELU or REDUCE_MAX, QUANTIZE by the operation on integers; all parts of a SPLIT become equal.

    Args:
        content: The content of a .tflite file.

    Returns:
        That of a file without the float tensors, which no operation uses any more.
    """
    model = unpack_model(content)
    codes = [code.builtinCode for code in model.operatorCodes]
    for graph in model.subgraphs:
        producers = {int(output): one for one in graph.operators for output in one.outputs}
        consumers = _consumers(graph)
        _quantize_unread_parts(graph, codes, consumers)
        removed: list = []
        for one in [one for one in graph.operators if codes[one.opcodeIndex] in (_Code.ELU, _Code.REDUCE_MAX)]:
            before, after = producers.get(int(one.inputs[0])), consumers[int(one.outputs[0])]
            if before is None or codes[before.opcodeIndex] != _Code.DEQUANTIZE:
                continue  # stays in float
            if [codes[other.opcodeIndex] for other in after] != [_Code.QUANTIZE]:
                continue
            of_float = consumers[int(before.outputs[0])]
            of_float.remove(one)
            one.inputs = np.array([before.inputs[0], *one.inputs[1:]], "int32")
            one.outputs = np.array(after[0].outputs, "int32")
            if codes[one.opcodeIndex] == _Code.REDUCE_MAX:  # the kernel compares integers
                graph.tensors[one.outputs[0]].quantization = graph.tensors[one.inputs[0]].quantization
                model.operatorCodes[one.opcodeIndex].version = 2  # the first with integers (TFLite's op_version.cc)
            removed += after if of_float else [before, *after]
        graph.operators = [one for one in graph.operators if not any(one is other for other in removed)]
        _remove_unused_tensors(model, graph)
    return pack_model(model)


def _quantize_unread_parts(graph, codes, consumers):
    """Gives unread parts of a SPLIT its input's type: an attention map does not read the last block's values."""
    for one in graph.operators:
        if codes[one.opcodeIndex] == _Code.SPLIT:
            source = graph.tensors[one.inputs[1]]
            for part in (graph.tensors[index] for index in one.outputs if not consumers[int(index)]):
                part.type, part.quantization = source.type, source.quantization


def _remove_unused_tensors(model, graph):
    ends = [end for one in (graph, *graph.operators) for end in (one.inputs, one.outputs)]
    used = sorted({int(index) for end in ends for index in end if index >= 0})
    places = {old: new for new, old in enumerate(used)}
    for one in (graph, *graph.operators):
        one.inputs, one.outputs = (
            np.array([places.get(int(index), -1) for index in end], "int32") for end in (one.inputs, one.outputs)
        )
    for one in model.signatureDefs or ():
        if model.subgraphs[one.subgraphIndex] is graph:
            for tensor in (*one.inputs, *one.outputs):
                tensor.tensorIndex = places[tensor.tensorIndex]
    graph.tensors = [graph.tensors[index] for index in used]


def _consumers(graph):
    """Index of a tensor -> the operations that read it."""
    found = defaultdict(list)
    for one in graph.operators:
        for index in one.inputs:
            found[int(index)].append(one)
    return found
