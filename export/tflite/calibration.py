"""Calibration: ranges of activations, measured on images or known beforehand. n images, H W pixels, D width.

Integers cover the range from the smallest to the largest value, except where the operation that reads them says more
(`fixed_ranges`), and a few (`_NARROW`). Narrower ranges of tokens and of GELU were worse on trained networks: their
outliers matter.
"""

import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.schema_py_generated import ActivationFunctionType, BuiltinOperator, ModelT, TensorType

from keras_vit.export.tflite.arithmetic import ROUNDING_ERROR, watch_norms
from keras_vit.export.tflite.flatbuffer import operator_code, operators_of_kind, pack_model, unpack_model
from keras_vit.export.tflite.graph import batches
from keras_vit.export.tflite.graph_rewrite import (
    EMBEDDING,
    VALUES,
    encoder_blocks,
    layer_norm_outputs,
    signature_function,
)

# Fewer images yield poor ranges; LiteRT's guide recommends 100 to 500.
MIN_IMAGES = 20
_LOWEST = -6.5  # below, e^x is less than half a step of 1 / 255
_GELU_LOWEST = -3.5  # below, GELU is within 0.001 of 0
# Names of activations whose largest values matter less than the rounding of the others.
_NARROW = re.compile(f"{EMBEDDING}|norm_[a-z]+/mul$|{VALUES}/MatMul$")
# Operations whose outputs have the scale of this input.
_SAME_SCALE = {
    BuiltinOperator.SPLIT: 1,
    BuiltinOperator.TRANSPOSE: 0,
    BuiltinOperator.RESHAPE: 0,
    BuiltinOperator.SLICE: 0,
    BuiltinOperator.STRIDED_SLICE: 0,
}


def attention_ranges(model, images):
    """Smallest and largest value of each channel of queries, keys and values: one array (2, 3 D) per block."""
    layers = [block.attention.qkv for block in encoder_blocks(model)]
    if not layers:
        return []

    @tf.function
    def extremes(image):
        outputs = [layer(x) for layer, x in zip(layers, layer_norm_outputs(model, image)[::2])]
        return [(tf.reduce_min(values, axis=(0, 1)), tf.reduce_max(values, axis=(0, 1))) for values in outputs]

    of_images = np.array([extremes(tf.constant(image[None])) for image in images])  # (n, blocks, 2, 3 D)
    return np.stack([of_images[:, :, 0].min(axis=0), of_images[:, :, 1].max(axis=0)], axis=1)


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
        narrow: Whether embeddings, normalized tokens and weighed values get a range halfway between that of the median
            image and that of all. A few images have twice the range, and the rounding of the others matters more.
    """
    model = unpack_model(float32)
    (graph,) = model.subgraphs
    written = {int(index) for operator in graph.operators for index in operator.outputs}
    activations = [index for index in sorted(written) if graph.tensors[index].type == TensorType.FLOAT32]
    extremes: dict[int, list] = {index: [] for index in activations}
    for index, values in activation_values(model, activations, images):
        extremes[index].append((values.min(), values.max()))
    extremes[int(graph.inputs[0])] = [(0, 255)]  # phones feed uint8 pixels as they are
    ranges = {}
    for index, ends in extremes.items():
        name, ones = graph.tensors[index].name.decode(), [1] * len(graph.tensors[index].shape)
        lows, highs = np.transpose(ends)
        low, high = lows.min(), highs.max()
        if narrow and _NARROW.search(name.partition(";")[0]):
            low, high = (low + np.median(lows)) / 2, (high + np.median(highs)) / 2
        ranges[name] = {"min": np.full(ones, low, "float32"), "max": np.full(ones, high, "float32")}
    return ranges


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


def input_moments(float32: bytes, images) -> dict[str, np.ndarray]:
    """Moments of the inputs of all linear layers, {name of the tensor: (D + 1, D + 1)}, for `learn_rounding`.

    X^T X, where X are inputs with a last column of ones: second moments, sums and their number.
    """
    model = unpack_model(float32)
    names: dict[int, str] = {}
    moments: dict = {}
    for graph, product in operators_of_kind(model, BuiltinOperator.FULLY_CONNECTED):
        names[int(product.inputs[0])] = graph.tensors[product.inputs[0]].name.decode()
    for index, values in activation_values(model, sorted(names), images):
        values = np.pad(values.reshape(-1, values.shape[-1]), ((0, 0), (0, 1)), constant_values=1)
        moments[names[index]] = moments.get(names[index], 0) + values.T @ values
    return moments


def fixed_ranges(model: ModelT, ranges: dict[str, dict]) -> dict[str, dict]:
    """The ranges, with those that follow from the operations.

    Exponentials are e^x for x in [-6.5, 0]. Logits that are 6.5 below the smallest maximum of a row count for nothing,
    nor do inputs of GELU below -3.5. Ramps are in [0, 6]: those of a variance that is the same in all images and below
    the first point would have the range [0, 0], with which XNNPACK does not load the file. The error of a sum is at
    most a step of it, see `add_with_error`; calibration, in float, finds none.
    """
    (graph,) = model.subgraphs
    ends: dict[int, tuple[float, float]] = {}
    differences = set()  # e^x - 1
    names = [tensor.name.decode() for tensor in graph.tensors]
    producers = {int(output): operator for operator in graph.operators for output in operator.outputs}

    def measured(index) -> list[float]:
        return [ranges[names[index]][end].item() for end in ("min", "max")]

    for operator in graph.operators:
        code, output = operator_code(model, operator), int(operator.outputs[0])
        if code == BuiltinOperator.ELU:
            ends |= {int(operator.inputs[0]): (_LOWEST, 0), output: (-1, 0)}
            differences.add(output)
            logits, largest = map(int, producers[int(operator.inputs[0])].inputs)
            low, high = measured(logits)
            ends[logits] = max(low, measured(largest)[0] + _LOWEST), high
        elif code == BuiltinOperator.GELU:
            low, high = measured(index := int(operator.inputs[0]))
            ends[index] = max(low, _GELU_LOWEST), max(high, 0)
        elif ROUNDING_ERROR in names[output]:
            total = int(producers[int(operator.inputs[0])].inputs[1])
            step = max(map(abs, measured(total))) / 127
            ends[output] = -step, step
        elif code == BuiltinOperator.ADD and not differences.isdisjoint(map(int, operator.inputs)):
            ends[output] = 0, 1
        elif getattr(operator.builtinOptions, "fusedActivationFunction", 0) == ActivationFunctionType.RELU6:
            ends[output] = 0, 6
    changed = dict(ranges)
    for index, (low, high) in ends.items():
        name = names[index]
        changed[name] = {end: np.full_like(ranges[name][end], value) for end, value in (("min", low), ("max", high))}
    return changed


def symmetric_ranges(model: ModelT, ranges: dict[str, dict]) -> dict[str, dict]:
    """The ranges, with those of right operands of products widened to [-128 a, 127 a]: their int8 zero point is 0.

    XNNPACK multiplies two int8 tensors only if the zero point of the right one is 0
    (`src/subgraph/batch-matrix-multiply.c`; LiteRT 2.1.3 and later). Otherwise LiteRT's own kernel runs, which is many
    times slower. Right operands are keys, values, and with `arithmetic.INTEGERS` the centered tokens.
    """
    (graph,) = model.subgraphs
    changed = dict(ranges)
    producers = {int(output): operator for operator in graph.operators for output in operator.outputs}
    waiting = [int(product.inputs[1]) for _, product in operators_of_kind(model, BuiltinOperator.BATCH_MATMUL)]
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
