"""Rounds weights to few bits with the least error in what their layer computes: GPTQ (arXiv 2210.17323).

The error of each weight is made up for by the weights of the same output that are not rounded yet, as far as the inputs
of a calibration are correlated; the mean error goes to the bias.
"""

from collections import Counter

import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.tflite.flatbuffer import operators_of_kind

_DAMPING = 0.01  # of the mean second moment, as in the paper
# Moments of few tokens are noise, such as of 200 class tokens, all that the last block of a ViT reads. This, times the
# number of inputs, over that of tokens, is added: on other photographs, the errors of DINOv2-S were a quarter smaller.
_NOISE = 0.05
_CLIPPING = np.linspace(0.6, 1.0, 11)  # largest integer's value, relative to the largest weight


def round_weights(weights, moments, bits: int, block: int, tokens: float = np.inf):
    """Integers and scales: `weights` is about `scales`, repeated `block` times along the inputs, times `integers`.

    Args:
        weights: (outputs, inputs) float.
        moments: Second moments or covariance of the layer's inputs, (inputs, inputs).
        bits: Bits of an integer.
        block: Number of inputs that share a scale; it divides their number.
        tokens: Number of tokens that the moments are of.

    Returns:
        (outputs, inputs) int8, and (outputs, inputs / block) float32 whose values bfloat16 and float16 can represent.
    """
    weights = np.array(np.transpose(weights), "float32", order="C")  # (inputs, outputs): those of an input are together
    moments = np.array(moments, "float64")
    damping = _DAMPING + _NOISE * len(moments) / tokens
    np.fill_diagonal(moments, np.maximum(np.diag(moments), 1e-12) + damping * np.diag(moments).mean())
    # inverse = factor^T factor; row i: how the weights after i make up for an error of weight i
    factor = np.linalg.cholesky(np.linalg.inv(moments)).T
    importance = (1 / np.diag(factor) ** 2).astype("float32")
    factor = (factor / np.diag(factor)[:, None]).astype("float32")
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    integers, scales = np.zeros(weights.shape, "int8"), []
    for start in range(0, len(weights), block):
        end = start + block
        scale = _best_scale(weights[start:end], importance[start:end], low, high)
        scales.append(scale)
        errors = np.zeros_like(weights[start:end])
        for i in range(start, end):
            integers[i] = np.clip(np.rint(weights[i] / scale), low, high)
            errors[i - start] = weights[i] - integers[i] * scale
            weights[i + 1 : end] -= np.outer(factor[i, i + 1 : end], errors[i - start])
        weights[end:] -= factor[start:end, end:].T @ errors
    return integers.T, np.stack(scales, axis=1)


def _best_scale(weights, importance, low, high):
    """The scale of each output with the least weighted squared error: (block, outputs) -> (outputs,)."""
    largest = np.maximum(np.abs(weights).max(axis=0), 1e-12)
    scales = [(part * largest / high).astype(tf.bfloat16.as_numpy_dtype).astype("float16") for part in _CLIPPING]
    scales = np.maximum(np.stack(scales).astype("float32"), np.finfo("float16").smallest_subnormal)
    errors = [
        importance @ np.square(np.clip(np.rint(weights / scale), low, high) * scale - weights) for scale in scales
    ]
    return scales[np.argmin(errors, axis=0), np.arange(len(largest))]


def learn_rounding(model: schema.ModelT, float32: schema.ModelT, moments: dict):
    """Rounds the 4-bit weights of a model again, in place, and subtracts the mean error from biases."""
    uses = Counter(tensor.buffer for graph in model.subgraphs for tensor in graph.tensors)
    products, originals = (operators_of_kind(part, schema.BuiltinOperator.FULLY_CONNECTED) for part in (model, float32))
    for (graph, product), (before, original) in zip(products, originals, strict=True):
        weight, exact = graph.tensors[product.inputs[1]], before.tensors[original.inputs[1]]
        if weight.type != schema.TensorType.INT4:
            continue
        exact = float32.buffers[exact.buffer].data.view("float32").reshape(weight.shape)
        details = weight.quantization.details
        block = details.blockSize if details is not None else weight.shape[1]
        of_input = moments[before.tensors[original.inputs[0]].name.decode()].astype("float64")
        tokens = of_input[-1, -1]
        mean, of_input = of_input[-1, :-1] / tokens, of_input[:-1, :-1] / tokens
        biases = [graph.tensors[index].buffer for index in product.inputs[2:] if index >= 0]
        # Biases of the same values, such as zeros, are stored once.
        own_biases = [model.buffers[number] for number in biases if uses[number] == 1]
        if own_biases:  # correct the mean error, which the rounding therefore need not regard
            of_input -= np.outer(mean, mean)
        integers, scales = round_weights(exact, of_input, 4, block, tokens)
        for bias in own_biases:
            error = (integers * np.repeat(scales, block, axis=1) - exact) @ mean
            bias.data = (bias.data.view("float32") - error.astype("float32")).view("uint8")
        low, high = (np.pad(integers.ravel(), (0, integers.size % 2)).reshape(-1, 2) & 15).T
        model.buffers[weight.buffer].data = (low | high << 4).view("uint8")
        if details is not None:
            model.buffers[graph.tensors[details.scales].buffer].data = scales.astype("float16").ravel().view("uint8")
        else:
            weight.quantization.scale = scales[:, 0]
