"""Rounds weights to few bits with the least error in what their layer computes: GPTQ (arXiv 2210.17323).

The error of each weight is made up for by the weights of the same output that are not rounded yet, as far as the inputs
of a calibration are correlated; the mean error goes to the bias. Coordinate descent then lowers the error once more.
"""

from collections import Counter

import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.tflite.calibration import Float32File, linear_layers, patch_size

_DAMPING = 0.01  # of the mean second moment, as in the paper
# Moments of few tokens are noise, such as of 200 class tokens, all that the last block of a ViT reads. This, times the
# number of inputs, over that of tokens, is added: on other photographs, the errors of DINOv2-S were a quarter smaller.
_NOISE = 0.05
_SWEEPS = 3  # of coordinate descent; later ones change the errors by less than 1 %
_BITS = {schema.TensorType.INT4: 4, schema.TensorType.INT8: 8}
_CLIPPING = np.linspace(0.6, 1.0, 11)  # largest integer's value, relative to the largest weight


def round_weights(weights, moments, bits: int, block: int, tokens: float = np.inf, scales=None):
    """Integers and scales: `weights` is about `scales`, repeated `block` times along the inputs, times `integers`.

    Args:
        weights: (outputs, inputs) float.
        moments: Second moments or covariance of the layer's inputs, (inputs, inputs).
        bits: Bits of an integer.
        block: Number of inputs that share a scale; it divides their number.
        tokens: Number of tokens that the moments are of.
        scales: (outputs, inputs / block), which are kept. None: those of the least error.

    Returns:
        (outputs, inputs) int8, and (outputs, inputs / block) float32; bfloat16 and float16 can represent new scales.
    """
    weights = np.array(np.transpose(weights), "float32", order="C")  # (inputs, outputs): those of an input are together
    exact, moments = weights.copy(), np.array(moments, "float64")
    damping = _DAMPING + _NOISE * len(moments) / tokens
    np.fill_diagonal(moments, np.maximum(np.diag(moments), 1e-12) + damping * np.diag(moments).mean())
    # inverse = factor^T factor; row i: how the weights after i make up for an error of weight i
    factor = np.linalg.cholesky(np.linalg.inv(moments)).T
    importance = (1 / np.diag(factor) ** 2).astype("float32")
    factor = (factor / np.diag(factor)[:, None]).astype("float32")
    high = 2 ** (bits - 1) - 1
    low = -high if bits == 8 else -high - 1  # TFLite has no weights of -128
    search = scales is None
    scales = np.zeros((len(weights) // block, weights.shape[1]), "float32") if search else np.transpose(scales)
    integers = np.zeros_like(weights)
    rows = block if search else 32  # at a time
    for start in range(0, len(weights), rows):
        end = min(start + rows, len(weights))
        if search:
            scales[start // block] = _best_scale(weights[start:end], importance[start:end], low, high)
        scale = scales[start // block]
        errors = np.zeros_like(weights[start:end])
        for i in range(start, end):
            integers[i] = np.clip(np.rint(weights[i] / scale), low, high)
            errors[i - start] = weights[i] - integers[i] * scale
            weights[i + 1 : end] -= np.outer(factor[i, i + 1 : end], errors[i - start])
        weights[end:] -= factor[start:end, end:].T @ errors
    if search:
        _descend(exact, moments.astype("float32"), integers, scales, low, high)
    return integers.T.astype("int8"), scales.T


def _descend(exact, moments, integers, scales, low, high):
    """Sets each scale, then each integer, to the value with the least error while all others stay, in place.

    The error is the sum over outputs of e^T `moments` e, where e are errors of an output's weights.

    Args:
        exact, integers: (inputs, outputs) float32.
        moments: (inputs, inputs) float32.
        scales: (inputs / block, outputs) float32.
        low, high: Smallest and largest integer.
    """
    block = len(exact) // len(scales)
    gradient = moments @ (integers * np.repeat(scales, block, axis=0) - exact)  # half of the error's
    for start in [*range(0, len(exact), block)] * _SWEEPS:
        rows, scale = slice(start, start + block), scales[start // block]
        inner, values = moments[rows, rows], integers[rows]
        before, of_block = values * scale, gradient[rows].copy()
        slope, curvature = (of_block * values).sum(axis=0), (values * (inner @ values)).sum(axis=0)
        best = _storable(scale - slope / np.maximum(curvature, 1e-20))
        change = best - scale
        better = (best > scale / 2) & (2 * change * slope + change * change * curvature < 0)  # after it is rounded
        scale = scales[start // block] = np.where(better, best, scale)
        of_block += inner @ (values * scale - before)
        for i in range(block):
            weight = values[i] * scale
            values[i] = np.clip(np.rint((weight - of_block[i] / inner[i, i]) / scale), low, high)
            of_block += np.outer(inner[:, i], values[i] * scale - weight)
        gradient += moments[:, rows] @ (values * scale - before)


def _storable(scales):
    """The nearest scales that bfloat16 and float16 can represent, positive."""
    scales = scales.astype(tf.bfloat16.as_numpy_dtype).astype("float16").astype("float32")
    return np.maximum(scales, np.finfo("float16").smallest_subnormal)


def _best_scale(weights, importance, low, high):
    """The scale of each output with the least weighted squared error: (block, outputs) -> (outputs,)."""
    largest = np.maximum(np.abs(weights).max(axis=0), 1e-12)
    scales = _storable(_CLIPPING[:, None] * largest / high)
    errors = [
        importance @ np.square(np.clip(np.rint(weights / scale), low, high) * scale - weights) for scale in scales
    ]
    return scales[np.argmin(errors, axis=0), np.arange(len(largest))]


def learn_rounding(model: schema.ModelT, float32: Float32File):
    """Rounds the integer weights of a model again, in place, and subtracts the mean error from biases.

    Weights of 8 bits keep their scales. Convolutions are those of patches. Weights that several layers share stay as
    they are.
    """
    uses = Counter(
        graph.tensors[index].buffer
        for graph in model.subgraphs
        for operator in graph.operators
        for index in operator.inputs
        if index >= 0
    )
    for (graph, product), (before, original) in zip(linear_layers(model), linear_layers(float32.model), strict=True):
        weight, exact = graph.tensors[product.inputs[1]], before.tensors[original.inputs[1]]
        of_input = float32.moments.get((before.tensors[original.inputs[0]].name.decode(), patch_size(before, original)))
        bits = _BITS.get(weight.type)
        if bits is None or of_input is None or model.buffers[weight.buffer].data is None or uses[weight.buffer] > 1:
            continue
        exact = float32.model.buffers[exact.buffer].data.view("float32").reshape(exact.shape[0], -1)
        if len(of_input) != exact.shape[1] + 1:
            continue
        details = weight.quantization.details
        block = details.blockSize if details is not None else exact.shape[1]
        of_input = of_input.astype("float64")
        tokens = of_input[-1, -1]
        mean, of_input = of_input[-1, :-1] / tokens, of_input[:-1, :-1] / tokens
        biases = [graph.tensors[index].buffer for index in product.inputs[2:] if index >= 0]
        # A layer may be called several times, and biases of the same values, such as zeros, are stored once.
        own_biases = [model.buffers[number] for number in biases if uses[number] == 1]
        if own_biases:  # correct the mean error, which the rounding therefore need not regard
            # Moments are products in float32, whose errors would let a small eigenvalue be negative.
            uncertainty = 1e-5 * np.sqrt(len(mean)) * np.diag(of_input)
            of_input += np.diag(uncertainty) - np.outer(mean, mean)
        kept = None if bits == 4 else np.reshape(weight.quantization.scale, (-1, 1)).astype("float32")
        integers, scales = round_weights(exact, of_input, bits, block, tokens, kept)
        error = (integers * np.repeat(scales, block, axis=1) - exact) @ mean
        for bias in own_biases:
            _subtract(bias, graph.tensors[product.inputs[2]], error)
        if bits == 8:
            model.buffers[weight.buffer].data = integers.ravel().view("uint8")
            continue
        low, high = (np.pad(integers.ravel(), (0, integers.size % 2)).reshape(-1, 2) & 15).T
        model.buffers[weight.buffer].data = (low | high << 4).view("uint8")
        if details is not None:
            model.buffers[graph.tensors[details.scales].buffer].data = scales.astype("float16").ravel().view("uint8")
        else:
            weight.quantization.scale = scales[:, 0]


def _subtract(buffer, tensor, error):
    """Subtracts an array (outputs,) from a bias: float32, or integers with a scale for each output."""
    if tensor.type == schema.TensorType.FLOAT32:
        buffer.data = (buffer.data.view("float32") - error.astype("float32")).view("uint8")
    else:
        dtype = {schema.TensorType.INT32: "int32", schema.TensorType.INT64: "int64"}[tensor.type]
        steps = np.rint(error / np.asarray(tensor.quantization.scale, "float64")).astype(dtype)
        buffer.data = (buffer.data.view(dtype) - steps).view("uint8")
