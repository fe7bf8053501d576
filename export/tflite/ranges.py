"""Ranges of activations that integers cover: measured by a calibration, or known beforehand.

From the smallest to the largest value, except where the operation that reads them says more (`fixed_ranges`), and some
(`_narrowed`). Narrower ranges of tokens were worse on trained networks: their outliers matter.
"""

import re
from collections import Counter

import numpy as np
from ai_edge_litert.schema_py_generated import BuiltinOperator as _Code
from ai_edge_litert.schema_py_generated import ModelT

from keras_vit.export.names import (
    CARRIED_ERROR,
    EMBEDDING,
    EXPONENTIALS,
    NORM,
    NORMALIZED_ERROR,
    PATCHES,
    RAMPS,
    ROUNDING_ERROR,
    SQUARES,
    VALUES,
)
from keras_vit.export.tflite.calibration import Float32File
from keras_vit.export.tflite.flatbuffer import operator_code, operators_of_kind

_LOWEST = -6.5  # below, e^x is less than half a step of 1 / 255
_GELU_LOWEST = -3.5  # below, GELU is within 0.001 of 0
# Names of activations whose largest values matter less than the rounding of the others.
_NARROW = re.compile(f"{PATCHES}|{EMBEDDING}|{NORM}/norm_[a-z]+/(mul|add)$|{VALUES}/MatMul$".replace(".", r"\."))
# Operations whose outputs have the scale of this input.
_SAME_SCALE = {
    _Code.SPLIT: 1,
    _Code.TRANSPOSE: 0,
    _Code.RESHAPE: 0,
    _Code.SLICE: 0,
    _Code.STRIDED_SLICE: 0,
}


def integer_ranges(float32: Float32File, name: str) -> dict[str, dict]:
    """Ranges of all activations for a format of `STATIC`, {name: {"min", "max"}} as litert-quantizer takes them."""
    ranges = fixed_ranges(float32.model, activation_ranges(float32, narrow=name == "int8"))
    # 16-bit integers always have the zero point 0.
    return (uneven_ranges if name == "int16x8" else symmetric_ranges)(float32.model, ranges)


def activation_ranges(float32: Float32File, narrow: bool = False) -> dict[str, dict]:
    """The ranges that were measured, {name: {"min", "max"}}.

    The range of the input is always [0, 255]. Constants have none: a weight with a range would be rounded with that one
    scale, instead of one for each output channel.

    Args:
        float32: The file, with images.
        narrow: Whether embeddings, normalized tokens, weighed values, GELU and the outputs of branches get a range
            halfway between that of the median image and that of all. A few images have twice the range, and the
            rounding of the others matters more.
    """
    (graph,) = float32.model.subgraphs
    narrowed = _narrowed(float32.model) if narrow else set()
    ranges = {}
    pixels = {int(graph.inputs[0]): np.array([[0], [255]])}  # phones feed uint8 pixels as they are
    for index, (lows, highs) in {**float32.extremes, **pixels}.items():
        name, ones = graph.tensors[index].name.decode(), [1] * len(graph.tensors[index].shape)
        low, high = lows.min(), highs.max()
        high = high if low or high else 1.0  # off in all images: with steps of about 0, biases would overflow
        if index in narrowed:
            low, high = (low + np.median(lows)) / 2, (high + np.median(highs)) / 2
        ranges[name] = {"min": np.full(ones, low, "float32"), "max": np.full(ones, high, "float32")}
    return ranges


def _narrowed(model: ModelT) -> set[int]:
    """Activations whose largest values matter less than the rounding of the others."""
    (graph,) = model.subgraphs
    indices = set()
    for operator in graph.operators:
        name = _name(graph, output := int(operator.outputs[0]))
        if operator_code(model, operator) == _Code.GELU:
            indices |= {int(operator.inputs[0]), output}
        elif ROUNDING_ERROR in name:
            indices.add(int(operator.inputs[1]))  # the branch, see `add_with_error`
        elif _NARROW.search(name):
            indices.add(output)
    return indices


def fixed_ranges(model: ModelT, ranges: dict[str, dict]) -> dict[str, dict]:
    """The ranges, with those that follow from the operations.

    Exponentials are e^x of the 6.5 below the largest x. Logits that are 6.5 below the smallest maximum of a row count
    for nothing, nor do inputs that GELU alone reads below -3.5. Ramps are in [0, 6]: those of a variance that is the
    same in all images and below the first point would have the range [0, 0], with which XNNPACK does not load the file.
    """
    (graph,) = model.subgraphs
    ends = _ranges_of_sums(model, ranges)
    differences = set()  # e^x - 1
    names = [tensor.name.decode() for tensor in graph.tensors]
    producers = {int(output): operator for operator in graph.operators for output in operator.outputs}
    readers = Counter(int(index) for reader in graph.operators for index in {*reader.inputs}) + Counter(graph.outputs)

    def measured(index) -> list[float]:
        return [ranges[names[index]][end].item() for end in ("min", "max")]

    for operator in graph.operators:
        code, output = operator_code(model, operator), int(operator.outputs[0])
        name = _name(graph, output)
        if EXPONENTIALS in name:
            exponents = int(operator.inputs[0])
            ends |= {exponents: (measured(exponents)[1] + _LOWEST, 0), output: (-1, 0)}
            differences.add(output)
            if operator_code(model, producers[exponents]) == _Code.SUB:
                logits, largest = map(int, producers[exponents].inputs)
                low, high = measured(logits)
                ends[logits] = ends[largest] = max(low, measured(largest)[0] + _LOWEST), high
        elif code == _Code.GELU and readers[int(operator.inputs[0])] == 1:
            low, high = measured(index := int(operator.inputs[0]))
            ends[index] = max(low, _GELU_LOWEST), max(high, 0)
        elif SQUARES in name:  # products of two channels are not read
            ends[output] = 0, measured(output)[1]
        elif code == _Code.ADD and not differences.isdisjoint(map(int, operator.inputs)):
            ends[output] = 0, measured(output)[1]
        elif RAMPS in name:
            ends[output] = 0, 6
    changed = dict(ranges)
    for index, (low, high) in ends.items():
        name = names[index]
        changed[name] = {end: np.full_like(ranges[name][end], value) for end, value in (("min", low), ("max", high))}
    return changed


def _ranges_of_sums(model: ModelT, ranges: dict[str, dict]) -> dict[int, tuple[float, float]]:
    """Ranges of the sums of tokens and of what `add_with_error` computes beside them, {index: (low, high)}.

    Steps of the sums are those of the widest, divided by powers of 2. Where the branch is narrow enough, the difference
    of two sums has the smaller of their steps, and is exact. The error that is carried is at most a step of its sum;
    calibration, in float, finds none.
    """
    (graph,) = model.subgraphs
    producers = {int(output): operator for operator in graph.operators for output in operator.outputs}

    def operators(name) -> list:
        return [operator for operator in graph.operators if name in _name(graph, operator.outputs[0])]

    def largest(index) -> float:
        return max(np.abs(ranges[graph.tensors[index].name.decode()][end]).item() for end in ("min", "max"))

    losses = operators(ROUNDING_ERROR)
    differences = [producers[int(operator.inputs[0])] for operator in losses]
    widths = {int(difference.inputs[1]): largest(int(difference.inputs[1])) for difference in differences}
    widths = {i: max(widths.values()) / 2 ** np.floor(np.log2(max(widths.values()) / widths[i])) for i in widths}
    symmetric, steps, carried = dict(widths), {}, 0.0
    for operator, difference in zip(losses, differences, strict=True):
        before, total = map(int, difference.inputs)
        while before in producers and operator_code(model, producers[before]) in _SAME_SCALE:
            before = int(producers[before].inputs[_SAME_SCALE[operator_code(model, producers[before])]])
        exact = min(widths.get(before, np.inf), widths[total])
        if before in widths and largest(output := int(difference.outputs[0])) <= exact:
            symmetric[output] = exact
        lost = int(operator.outputs[0])
        steps[lost] = widths[total] / 127
        symmetric[lost], carried = carried + steps[lost], steps[lost]
    for operator in operators(CARRIED_ERROR):
        symmetric[int(operator.outputs[0])] = steps[int(operator.inputs[0])]
    for operator in operators(NORMALIZED_ERROR):
        error, rsqrt = map(int, operator.inputs)
        symmetric[int(operator.outputs[0])] = symmetric[error] * largest(rsqrt)
    return {index: (-width * 128 / 127, width) for index, width in symmetric.items()}


def _name(graph, index) -> str:
    """The name of a tensor without those that the converter appends of operations that it fused."""
    return graph.tensors[index].name.decode().partition(";")[0]


def symmetric_ranges(model: ModelT, ranges: dict[str, dict]) -> dict[str, dict]:
    """The ranges, with those of right operands of products widened to [-128 a, 127 a]: their int8 zero point is 0.

    XNNPACK multiplies two int8 tensors only if the zero point of the right one is 0
    (`src/subgraph/batch-matrix-multiply.c`; LiteRT 2.1.3 and later). Otherwise LiteRT's own kernel runs, which is many
    times slower. Right operands are keys, values, and with `arithmetic.INTEGERS` the centered tokens.
    """
    (graph,) = model.subgraphs
    changed = dict(ranges)
    producers = {int(output): operator for operator in graph.operators for output in operator.outputs}
    waiting = [int(product.inputs[1]) for _, product in operators_of_kind(model, _Code.BATCH_MATMUL)]
    while waiting:
        index = waiting.pop()
        name = graph.tensors[index].name.decode()
        if name in ranges:
            step = np.maximum(-ranges[name]["min"] / 128, ranges[name]["max"] / 127)
            changed[name] = {"min": -128 * step, "max": 127 * step}
        producer = producers.get(index)
        if producer is not None and operator_code(model, producer) in _SAME_SCALE:
            waiting.append(int(producer.inputs[_SAME_SCALE[operator_code(model, producer)]]))
    return changed


def uneven_ranges(model: ModelT, ranges: dict[str, dict]) -> dict[str, dict]:
    """The ranges for 16 bits, with those of sums whose steps are about a power of 2 widened by 1 %.

    LiteRT adds by shifts if all three steps are powers of 2, and does not load the file if it had to shift both inputs,
    as for x + 1 with x in [0, 1] (`kernels/add.cc`, `kernels/sub.cc`).
    """
    changed = dict(ranges)
    for graph, operator in (found for code in (_Code.ADD, _Code.SUB) for found in operators_of_kind(model, code)):
        name = graph.tensors[operator.outputs[0]].name.decode()
        if name not in ranges:  # of integers
            continue
        power = float(np.log2(max(np.abs(ranges[name][end]).max() for end in ("min", "max")) / 32767 + 1e-30))
        if abs(power - round(power)) < 0.01:
            changed[name] = {end: values * np.float32(1.01) for end, values in ranges[name].items()}
    return changed
