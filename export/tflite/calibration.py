"""Calibration: ranges of activations, measured on images. n images, H W pixels, D width.

Integers cover the range from the smallest to the largest value. Narrower ranges with a smaller squared error (MSE
calibration) were worse on a trained network: its outliers matter (docs/results.md).
"""

import numpy as np
import tensorflow as tf
from ai_edge_litert.schema_py_generated import BuiltinOperator

from keras_vit.export.private_apis import inspectable_interpreter
from keras_vit.export.tflite.flatbuffer import unpack_model
from keras_vit.export.tflite.graph_rewrite import encoder_blocks, layer_norm_outputs
from keras_vit.export.tflite.layer_norm import watch_norms
from keras_vit.export.tflite.signatures import signature_function

# Fewer images yield poor ranges; LiteRT's guide recommends 100 to 500.
MIN_IMAGES = 20


def attention_ranges(model, images):
    """Largest absolute value of each channel of queries, keys and values: one array (3 D,) per block.

    Args:
        model: A `folded_copy`.
        images: (n, H, W, 3) float32 in [0, 255].
    """
    layers = [block.attention.qkv for block in encoder_blocks(model)]

    @tf.function
    def largest(image):
        inputs = layer_norm_outputs(model, image)[::2]
        return [tf.reduce_max(tf.abs(layer(x)), axis=(0, 1)) for layer, x in zip(layers, inputs)]

    found = [[one.numpy() for one in largest(tf.constant(image[None]))] for image in images]
    return [np.max(of_block, axis=0) for of_block in zip(*found)]


def measure_square_sums(model, signature: str, images):
    """Sets `square_sums` of the normalizations: (low, high) of the sums of squares of their centered tokens.

    The low end is half of the smallest sum, but not below half a step of an 8-bit tensor.

    Args:
        model: An `export_copy`.
        signature: The signature to be exported.
        images: (n, H, W, 3) float32 in [0, 255].
    """
    norms: list = []

    @tf.function
    def extremes(image):
        with watch_norms() as seen:
            signature_function(model, signature)(image)
        norms[:] = [norm for norm, _ in seen]
        return [(tf.reduce_min(sums), tf.reduce_max(sums)) for _, sums in seen]

    found = np.array([extremes(tf.constant(image[None])) for image in images])  # (n, normalizations, 2)
    for norm in norms:
        # One normalization may be called several times: for the class and the distillation token.
        of_norm = found[:, [other is norm for other in norms]]  # (n, calls, 2)
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
    (graph,) = unpack_model(float32).subgraphs
    activations = {entry["index"], *(int(output) for operation in graph.operators for output in operation.outputs)}
    tensors = [
        one for one in interpreter.get_tensor_details() if one["dtype"] == np.float32 and one["index"] in activations
    ]
    extremes: dict[int, tuple] = {}
    for image in images:
        interpreter.set_tensor(entry["index"], image[None])
        interpreter.invoke()
        for index in [one["index"] for one in tensors]:
            try:
                values = interpreter.get_tensor(index)
            except ValueError:  # a temporary of one operation, without data
                continue
            low, high = extremes.get(index, (np.inf, -np.inf))
            extremes[index] = min(low, float(values.min())), max(high, float(values.max()))
    ranges = {}
    for one in tensors:
        if one["index"] in extremes:
            ends = zip(("min", "max"), extremes[one["index"]])
            ranges[one["name"]] = {name: np.full([1] * len(one["shape"]), end, "float32") for name, end in ends}
    for name, end in (("min", 0.0), ("max", 255.0)):  # phones feed uint8 pixels as they are
        ranges[entry["name"]][name] = np.full((1, 1, 1, 1), end, "float32")
    return ranges


def input_moments(float32: bytes, images) -> dict[str, np.ndarray]:
    """Moments of the inputs of all linear layers, {name of the tensor: (D + 1, D + 1)}, for `learn_rounding`.

    X^T X, where X are inputs with a last column of ones: second moments, sums and their number.

    Args:
        float32, images: See `activation_ranges`.
    """
    interpreter = inspectable_interpreter(float32)
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    model = unpack_model(float32)
    (graph,) = model.subgraphs
    linear = {i for i, code in enumerate(model.operatorCodes) if code.builtinCode == BuiltinOperator.FULLY_CONNECTED}
    indices = {int(one.inputs[0]) for one in graph.operators if one.opcodeIndex in linear}
    moments: dict = dict.fromkeys(indices, 0)
    for image in images:
        interpreter.set_tensor(entry["index"], image[None])
        interpreter.invoke()
        for index in indices:
            values = interpreter.get_tensor(index)
            values = np.pad(values.reshape(-1, values.shape[-1]), ((0, 0), (0, 1)), constant_values=1)
            moments[index] = moments[index] + values.T @ values
    return {graph.tensors[index].name.decode(): found for index, found in moments.items()}
