"""Calibration: ranges of activations, measured on images or known beforehand. n images, H W pixels, D width.

Integers cover the range from the smallest to the largest value, except where the operation that reads them says more
(`fixed_ranges`), and some (`_narrowed`). Narrower ranges of tokens were worse on trained networks: their outliers
matter.
"""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.schema_py_generated import BuiltinOperator as _Code
from ai_edge_litert.schema_py_generated import ModelT, TensorType

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
from keras_vit.export.tflite.arithmetic import watch_norms
from keras_vit.export.tflite.flatbuffer import operator_code, operators_of_kind, pack_model, unpack_model
from keras_vit.export.tflite.graph import batches
from keras_vit.export.tflite.graph_rewrite import encoder_blocks, layer_norm_outputs, signature_function
from keras_vit.export.tflite.rounding import linear_layers, patch_size

# Fewer images yield poor ranges; LiteRT's guide recommends 100 to 500.
MIN_IMAGES = 20
_TOKENS = 64  # of an image, whose tokens are alike, count for the moments of weights' inputs
_TOGETHER = 8  # batches in a product of matrices: one of few tokens takes less time than its threads to start
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


def attention_ranges(model, images):
    """Smallest, largest and mean value of each channel of queries, keys and values: one array (3, 3 D) per block."""
    layers = [block.attention.qkv for block in encoder_blocks(model)]
    if not layers:
        return []

    @tf.function
    def statistics(image):
        outputs = [layer(x)[0] for layer, x in zip(layers, layer_norm_outputs(model, image)[::2])]  # (N, 3 D)
        return [
            [reduce(values, axis=0) for reduce in (tf.reduce_min, tf.reduce_max, tf.reduce_mean)] for values in outputs
        ]

    low, high, mean = np.array([statistics(tf.constant(image[None])) for image in images]).transpose(2, 0, 1, 3)
    return np.stack([low.min(axis=0), high.max(axis=0), mean.mean(axis=0)], axis=1)


def measure_square_sums(model, signature: str, images):
    """Sets `square_sums` of the normalizations: (low, high) of the sums of squares of their centered tokens.

    The low end is half of the smallest sum, but not below half a step of an 8-bit tensor.
    """
    norms: list = []

    @tf.function
    def extremes(image):
        with watch_norms() as seen:
            signature_function(model, signature)(image)
        norms[:] = [norm for norm, _ in seen]
        return [(tf.reduce_min(sums), tf.reduce_max(sums)) for _, sums in seen]

    extremes_of_images = np.array([extremes(tf.constant(image[None])) for image in images])  # (n, normalizations, 2)
    for norm in norms:
        # One normalization may be called several times: for the class and the distillation token.
        of_norm = extremes_of_images[:, [other is norm for other in norms]]  # (n, calls, 2)
        low, high = of_norm[..., 0].min(), max(of_norm[..., 1].max(), 1e-12)
        norm.square_sums = float(max(low / 2, high / 512)), float(high)


def activation_ranges(float32: bytes, images, narrow: bool = False) -> dict[str, dict]:
    """Ranges of all activations of a float32 model, {name: {"min", "max"}} as litert-quantizer takes them.

    The range of the input is always [0, 255]. Constants have none: a weight with a range would be rounded with that one
    scale, instead of one for each output channel.

    Args:
        float32: The content of a .tflite file with one signature and one input.
        images: (n, H, W, 3) float32 in [0, 255].
        narrow: Whether embeddings, normalized tokens, weighed values, GELU and the outputs of branches get a range
            halfway between that of the median image and that of all. A few images have twice the range, and the
            rounding of the others matters more.
    """
    model = unpack_model(float32)
    (graph,) = model.subgraphs
    written = {int(index) for operator in graph.operators for index in operator.outputs}
    activations = [index for index in sorted(written) if graph.tensors[index].type == TensorType.FLOAT32]
    extremes: dict[int, list] = {index: [] for index in activations}
    batch_size = graph.tensors[graph.inputs[0]].shape[0]
    for index, values in activation_values(model, activations, images):
        of_images = values.reshape(batch_size if values.size % batch_size == 0 else 1, -1)
        extremes[index] += zip(of_images.min(axis=1), of_images.max(axis=1))
    extremes[int(graph.inputs[0])] = [(0, 255)]  # phones feed uint8 pixels as they are
    narrowed = _narrowed(model) if narrow else set()
    ranges = {}
    for index, ends in extremes.items():
        name, ones = graph.tensors[index].name.decode(), [1] * len(graph.tensors[index].shape)
        lows, highs = np.transpose(ends)
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


def activation_values(model: ModelT, indices: list[int], images) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (index, values) of these activations, float32, for each batch of images.

    They become outputs of the file, because XNNPACK stores no others. It is five times as fast as LiteRT's own kernels.
    """
    (graph,), signatures = model.subgraphs, model.signatureDefs
    outputs, graph.outputs, model.signatureDefs = graph.outputs, np.array(indices, "int32"), []
    interpreter = Interpreter(model_content=pack_model(model), num_threads=2)
    graph.outputs, model.signatureDefs = outputs, signatures
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    places = [output["index"] for output in interpreter.get_output_details()]
    for batch in batches(images, entry["shape"][0]):
        interpreter.set_tensor(entry["index"], batch)
        interpreter.invoke()
        for index, place in zip(indices, places, strict=True):
            yield index, interpreter.get_tensor(place)


def input_moments(float32: bytes, images) -> dict[tuple, np.ndarray]:
    """Moments of the inputs of all linear layers, {(name of the tensor, patch size): (D + 1, D + 1)}.

    X^T X, where X are inputs with a last column of ones: second moments, sums and their number. Inputs of a convolution
    of patches are its patches, see `rounding.patch_size`.
    """
    model = unpack_model(float32)
    (graph,) = model.subgraphs
    sizes: dict[int, set] = {}
    for _, layer in linear_layers(model):
        if size := patch_size(graph, layer):
            sizes.setdefault(int(layer.inputs[0]), set()).add(size)
    batch_size = graph.tensors[graph.inputs[0]].shape[0]
    moments: dict = {}
    waiting: dict[tuple, list] = {}
    for number, (index, batch) in enumerate(activation_values(model, sorted(sizes), images)):
        remaining = len(images) - number // len(sizes) * batch_size  # the last batch is filled with copies
        for size in sizes[index]:
            values = _patches(batch, *size)
            values = values.reshape(batch_size, -1, values.shape[-1])  # (B, n, D)
            values = values[:remaining, :: max(1, values.shape[1] // _TOKENS)].reshape(-1, values.shape[-1])
            key = graph.tensors[index].name.decode(), size
            waiting.setdefault(key, []).append(values)
            if len(waiting[key]) < _TOGETHER and remaining > batch_size:
                continue
            values = np.pad(np.concatenate(waiting.pop(key)), ((0, 0), (0, 1)), constant_values=1)
            moments[key] = moments.get(key, 0) + values.T @ values
    return moments


def _patches(values, height, width):
    """(..., D) -> (n, D), or (B, H, W, C) -> (B h w, `height` `width` C)."""
    if (height, width) == (1, 1):
        return values.reshape(-1, values.shape[-1])
    values = values[:, : values.shape[1] // height * height, : values.shape[2] // width * width]
    batch, rows, columns, channels = values.shape
    values = values.reshape(batch, rows // height, height, columns // width, width, channels)
    return values.swapaxes(2, 3).reshape(-1, height * width * channels)


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
