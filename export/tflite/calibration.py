"""Calibration: ranges of channels and of activations, measured on images. n images, H W pixels, D width.

Integers cover the range from the smallest to the largest value. Narrower ranges with a smaller squared error (MSE
calibration) were worse on a trained network: its outliers matter (docs/results.md).
"""

import numpy as np
import tensorflow as tf

from keras_vit.export.private_apis import inspectable_interpreter
from keras_vit.export.tflite.flatbuffer import unpack_model
from keras_vit.export.tflite.graph_rewrite import encoder_blocks, layer_norm_outputs

# Fewer images yield poor ranges; LiteRT's guide recommends 100 to 500.
MIN_IMAGES = 20


def channel_ranges(model, images):
    """Smallest and largest value of each channel after each layer normalization of the blocks.

    Args:
        model: An `export_copy`.
        images: (n, H, W, 3) float32 in [0, 255].

    Returns:
        Two lists of arrays (D,), in the order of `layer_norm_outputs`.
    """

    @tf.function
    def extremes(image):
        outputs = layer_norm_outputs(model, image)
        return [tf.reduce_min(x, axis=(0, 1)) for x in outputs], [tf.reduce_max(x, axis=(0, 1)) for x in outputs]

    found = [extremes(tf.constant(image[None])) for image in images]
    lows = [np.min([low.numpy() for low in of_norm], axis=0) for of_norm in zip(*(low for low, _ in found))]
    highs = [np.max([high.numpy() for high in of_norm], axis=0) for of_norm in zip(*(high for _, high in found))]
    return lows, highs


def attention_ranges(model, images):
    """Largest absolute value of each channel of queries, keys and values: one array (3 D,) per block.

    Args:
        model, images: See `channel_ranges`.
    """
    layers = [block.attention.qkv for block in encoder_blocks(model)]

    @tf.function
    def largest(image):
        inputs = layer_norm_outputs(model, image)[::2]
        return [tf.reduce_max(tf.abs(layer(x)), axis=(0, 1)) for layer, x in zip(layers, inputs)]

    found = [[one.numpy() for one in largest(tf.constant(image[None]))] for image in images]
    return [np.max(of_block, axis=0) for of_block in zip(*found)]


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
