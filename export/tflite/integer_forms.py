"""Softmax and inverse square roots from operations that XNNPACK runs in 8 bits. N tokens, K heads, n d sizes.

XNNPACK has no 8-bit SOFTMAX and RSQRT: LiteRT's own kernels take a third of the time of a small ViT, and divide the
graph into pieces. The forms below are in integers as well, and more exact.
"""

import numpy as np
import tensorflow as tf

_PIECES = 16


def piecewise(x, weights, function, low: float, high: float):
    """function(sum(weights x)), linear between 17 points: (1, h, w, n) -> (1, h, w, 1).

    Each of 16 ramps climbs from 0 to 6 between two points, with all 256 levels of an 8-bit tensor. The points are a
    geometric series, because the functions are powers; beyond its ends the result is constant.

    Args:
        x: (1, h, w, n).
        weights: (n,) constants.
        function: Function of an array, convex, falling and positive.
        low, high: Ends of the range of the sum, positive.
    """
    points = np.geomspace(low, high, _PIECES + 1)
    values, between = function(points), function((points[1:] + points[:-1]) / 2)
    # Chords lie above the function: half of the largest error on each side.
    values = values * (1 - np.max((values[1:] + values[:-1]) / 2 / between - 1) / 2)
    slopes = 6 / np.diff(points)
    ramps = tf.nn.relu6(_convolution(x, np.asarray(weights)[:, None] * slopes, -points[:-1] * slopes))
    return _convolution(ramps, np.diff(values)[:, None] / 6, values[:1])


def _convolution(x, kernel, bias):
    """1 x 1, (1, h, w, n) -> (1, h, w, m). A matrix product would become a multiplication where n is 1."""
    kernel, bias = (tf.constant(one, "float32") for one in (kernel[None, None], bias))
    return tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "VALID"), bias)


def softmax_times(logits, value):
    """softmax(logits) value: (1, K, n, N), (1, K, N, d) -> (1, K, n, d).

    An 8-bit softmax has steps of 1/256, more than most of the weights of 197 tokens. Here exponentials, of which the
    largest is 1, are divided by the square root of their sum before the product with the values, and again after it.
    """
    length = logits.shape[-1]
    # ELU is e^x - 1 below 0; `integer_ops` sets the ranges.
    exponentials = tf.nn.elu(logits - tf.reduce_max(logits, axis=-1, keepdims=True)) + 1
    root = piecewise(exponentials, np.ones(length), lambda x: x**-0.5, 1, max(length, 2))  # (1, K, n, 1)
    return tf.matmul(exponentials * root, value) * root
