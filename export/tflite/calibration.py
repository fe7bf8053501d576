"""Calibration: ranges of activations, measured on images or known beforehand. n images, H W pixels, D width.

Integers cover the range from the smallest to the largest value. Narrower ranges with a smaller squared error (MSE
calibration) were worse on a trained network: its outliers matter.
"""

import numpy as np
import tensorflow as tf
from ai_edge_litert.schema_py_generated import ActivationFunctionType, BuiltinOperator, ModelT

from keras_vit.export.private_apis import inspectable_interpreter, operation_details
from keras_vit.export.tflite.arithmetic import watch_norms
from keras_vit.export.tflite.flatbuffer import operator_code, operators_of_kind
from keras_vit.export.tflite.graph import batches
from keras_vit.export.tflite.graph_rewrite import encoder_blocks, layer_norm_outputs, signature_function

# Fewer images yield poor ranges; LiteRT's guide recommends 100 to 500.
MIN_IMAGES = 20
_LOWEST = -6.5  # below, e^x is less than half a step of 1 / 255
# Operations whose outputs have the scale of this input.
_SAME_SCALE = {
    BuiltinOperator.SPLIT: 1,
    BuiltinOperator.TRANSPOSE: 0,
    BuiltinOperator.RESHAPE: 0,
    BuiltinOperator.SLICE: 0,
    BuiltinOperator.STRIDED_SLICE: 0,
}


def attention_ranges(model, images):
    """Largest absolute value of each channel of queries, keys and values: one array (3 D,) per block."""
    layers = [block.attention.qkv for block in encoder_blocks(model)]

    @tf.function
    def largest(image):
        inputs = layer_norm_outputs(model, image)[::2]
        return [tf.reduce_max(tf.abs(layer(x)), axis=(0, 1)) for layer, x in zip(layers, inputs)]

    sums = [[value.numpy() for value in largest(tf.constant(image[None]))] for image in images]
    return [np.max(of_block, axis=0) for of_block in zip(*sums)]


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


def activation_ranges(float32: bytes, images) -> dict[str, dict]:
    """Ranges of all activations of a float32 model, {name: {"min", "max"}} as litert-quantizer takes them.

    The range of the input is always [0, 255]. Constants have none: a weight with a range would be rounded with that one
    scale, instead of one for each output channel.

    Args:
        float32: The content of a .tflite file with one signature and one input.
        images: (n, H, W, 3) float32 in [0, 255].
    """
    interpreter = inspectable_interpreter(float32)
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    outputs = (int(index) for operation in operation_details(interpreter) for index in operation["outputs"])
    activations = {entry["index"], *outputs}
    tensors = [
        tensor
        for tensor in interpreter.get_tensor_details()
        if tensor["dtype"] == np.float32 and tensor["index"] in activations
    ]
    extremes: dict[int, tuple] = {}
    for batch in batches(images, entry["shape"][0]):
        interpreter.set_tensor(entry["index"], batch)
        interpreter.invoke()
        for index in [tensor["index"] for tensor in tensors]:
            try:
                values = interpreter.get_tensor(index)
            except ValueError:  # a temporary of one operation, without data
                continue
            low, high = extremes.get(index, (np.inf, -np.inf))
            extremes[index] = min(low, float(values.min())), max(high, float(values.max()))
    ranges = {}
    for tensor in tensors:
        if tensor["index"] in extremes:
            ends = zip(("min", "max"), extremes[tensor["index"]])
            ranges[tensor["name"]] = {name: np.full([1] * len(tensor["shape"]), end, "float32") for name, end in ends}
    for name, end in (("min", 0.0), ("max", 255.0)):  # phones feed uint8 pixels as they are
        ranges[entry["name"]][name] = np.full((1, 1, 1, 1), end, "float32")
    return ranges


def input_moments(float32: bytes, images) -> dict[str, np.ndarray]:
    """Moments of the inputs of all linear layers, {name of the tensor: (D + 1, D + 1)}, for `learn_rounding`.

    X^T X, where X are inputs with a last column of ones: second moments, sums and their number.
    """
    interpreter = inspectable_interpreter(float32)
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    products = [operation for operation in operation_details(interpreter) if operation["op_name"] == "FULLY_CONNECTED"]
    indices = {int(product["inputs"][0]) for product in products}
    moments: dict = dict.fromkeys(indices, 0)
    for batch in batches(images, entry["shape"][0]):
        interpreter.set_tensor(entry["index"], batch)
        interpreter.invoke()
        for index in indices:
            values = interpreter.get_tensor(index)
            values = np.pad(values.reshape(-1, values.shape[-1]), ((0, 0), (0, 1)), constant_values=1)
            moments[index] = moments[index] + values.T @ values
    names = {tensor["index"]: tensor["name"] for tensor in interpreter.get_tensor_details()}
    return {names[index]: of_tensor for index, of_tensor in moments.items()}


def fixed_ranges(model: ModelT, ranges: dict[str, dict]) -> dict[str, dict]:
    """The ranges, with those of `softmax_times` and `piecewise` that no image changes.

    Exponentials are e^x for x in [-6.5, 0]. Ramps are in [0, 6]: those of a variance that is the same in all images and
    below the first point would have the range [0, 0], with which XNNPACK does not load the file.
    """
    (graph,) = model.subgraphs
    ends: dict[int, tuple[float, float]] = {}
    differences = set()  # e^x - 1
    for operator in graph.operators:
        code, output = operator_code(model, operator), int(operator.outputs[0])
        if code == BuiltinOperator.ELU:
            ends |= {int(operator.inputs[0]): (_LOWEST, 0), output: (-1, 0)}
            differences.add(output)
        elif code == BuiltinOperator.ADD and not differences.isdisjoint(map(int, operator.inputs)):
            ends[output] = 0, 1
        elif getattr(operator.builtinOptions, "fusedActivationFunction", 0) == ActivationFunctionType.RELU6:
            ends[output] = 0, 6
    changed = dict(ranges)
    for index, (low, high) in ends.items():
        name = graph.tensors[index].name.decode()
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
