"""Normalizations and softmax in the form for the arithmetic of an exported graph.

B images, N tokens, K heads, D width.

XNNPACK has no 8-bit SOFTMAX and RSQRT: LiteRT's own kernels take a third of the time of a small ViT, and divide the
graph into pieces. `softmax_times` and `piecewise` are in integers as well, and more exact.
"""

import math
from collections.abc import Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import tensorflow as tf

from keras_vit.export.names import (
    CARRIED_ERROR,
    EXPONENTIALS,
    NORM,
    NORMALIZED_ERROR,
    RAMPS,
    ROTATE_BACK,
    ROUNDING_ERROR,
    SQUARES,
)

FLOAT = "float32"  # as the layers of `keras_vit.layers`
HALF = "float16"  # no square and no sum passes 65,504, the largest float16
INTEGERS = "int8"  # only operations that XNNPACK runs in 8 bits, see `piecewise` and `softmax_times`
_ARITHMETIC = ContextVar("arithmetic", default=FLOAT)
_WATCHING: ContextVar[list | None] = ContextVar("watching", default=None)
# Added to the largest value of a token, which may be 0. Any number is exact; half precision has this one.
_SMALLEST = 2.0**-10
_PIECES = 16


@contextmanager
def arithmetic(name: str):
    """`FLOAT`, `HALF` or `INTEGERS`: the form of the graph that is traced within."""
    token = _ARITHMETIC.set(name)
    try:
        yield
    finally:
        _ARITHMETIC.reset(token)


def current_arithmetic() -> str:
    """The name of the innermost `arithmetic`, `FLOAT` outside of all."""
    return _ARITHMETIC.get()


@contextmanager
def watch_norms():
    """Yields a list to which normalizations append (layer, sums of squares of what they centered, any shape)."""
    token = _WATCHING.set(seen := [])
    try:
        yield seen
    finally:
        _WATCHING.reset(token)


def _watch(norm, square_sums):
    seen = _WATCHING.get()
    if seen is not None:
        seen.append((norm, square_sums()))


def layer_norm(norm, tokens, error: Sequence = ()):
    """`LayerNorm` in the form of `arithmetic`: (..., D) -> (..., D). No mean is subtracted after `rotate_tokens`.

    `error` is that of `add_with_error`, which is divided by the same deviation and added.
    """
    with tf.name_scope(f"{NORM}/{norm.name}"):
        centered = getattr(norm, "centered", False)
        deviations = tokens if centered else tokens - tf.reduce_mean(tokens, axis=-1, keepdims=True)
        _watch(norm, lambda: tf.reduce_sum(deviations * deviations, axis=-1, keepdims=True))
        if current_arithmetic() == HALF:
            deviations, rsqrt = _within_one(deviations, norm.epsilon)
        else:
            rsqrt = _rsqrt(deviations, norm)
        if hasattr(norm, "rotate_back"):  # see `rotate_tokens`
            with tf.name_scope(ROTATE_BACK):
                return tf.matmul(deviations * rsqrt, norm.rotate_back) + norm.beta
        normalized = deviations * rsqrt
        for lost in error:
            normalized += tf.multiply(lost, rsqrt, name=NORMALIZED_ERROR)
        return normalized * norm.gamma + norm.beta


def add_with_error(tokens, branch, error: list):
    """tokens + branch, (B, N, D). With `INTEGERS`, the next normalization and sum make up for the rounding of this one.

    Tokens have 8 bits, and the 25 sums of 12 blocks round them 25 times. `error`, empty or (B, N, D), becomes the part
    of all branches so far that the rounding lost: in exact arithmetic 0. Together they have about 15 bits.
    """
    if current_arithmetic() != INTEGERS:
        return tokens + branch
    total = tokens + (branch + error[0] if error else branch)
    lost = tf.add(tokens - total, branch, name=ROUNDING_ERROR)
    error[:] = [tf.add(lost, error[0], name=CARRIED_ERROR) if error else lost]
    return total


def group_norm(norm, maps, training=None, relu=False):
    """`GroupNorm` in the form of `arithmetic`, (B, H, W, C) -> the same. No tensor has five axes, as Keras's have."""
    batch, height, width, channels = maps.shape
    members = channels // norm.groups

    def of_groups(values, reduce=tf.reduce_mean):
        """Over all pixels and each group's channels, for each channel: (B, H, W, C) -> (B, 1, 1, C)."""
        values = tf.reshape(reduce(values, axis=(1, 2)), (-1, norm.groups, members))
        return of_channels(reduce(values, axis=-1, keepdims=True))

    def of_channels(values):
        """(B, G, 1) -> (B, 1, 1, C)."""
        return tf.reshape(values * tf.ones((1, 1, members)), (-1, 1, 1, channels))  # not TILE

    epsilon = norm.epsilon
    if current_arithmetic() == HALF:  # as `_within_one`, and before the mean, whose sum would be infinite, too
        inverse = 1 / (of_groups(tf.abs(maps), tf.reduce_max) + _SMALLEST)
        root = inverse * epsilon**0.5
        maps, epsilon = maps * inverse, root * root
    centered = maps - of_groups(maps)
    if current_arithmetic() == INTEGERS:
        pixels = tf.transpose(tf.reshape(centered, (batch, height * width, channels)), (0, 2, 1))  # (B, C, H W)
        pixels = tf.reshape(pixels, (batch, norm.groups, members, -1))
        # Squares are the diagonal. A product of each channel alone takes several times as long. Twice the pixels are a
        # second tensor: GPU delegates do not multiply one by itself.
        products = tf.matmul(pixels, 2 * pixels, transpose_b=True, name=SQUARES)
        products = tf.reshape(products, (batch, norm.groups, 1, members**2))
        halves = np.eye(members).ravel() / 2
        rsqrt = _piecewise_rsqrt(products, halves, norm, height * width * members)  # (B, G, 1, 1)
        factor = of_channels(tf.reshape(rsqrt, (batch, norm.groups, 1)))
    else:
        variance = of_groups(centered * centered)
        _watch(norm, lambda: variance * (height * width * members))
        factor = tf.math.rsqrt(variance + epsilon)
    output = centered * (factor * norm.gamma) + norm.beta
    return tf.nn.relu(output) if relu else output


def _within_one(centered, epsilon):
    """Centered tokens divided by their largest absolute value, and 1 / sqrt(variance + epsilon) of the quotients.

    The square of 256 is infinite in half precision, in which GPUs compute, and a few channels of a ViT reach thousands
    ("Massive Activations in Large Language Models", arXiv 2402.17762, section 5). Squares of the quotients are at most
    1, and their sum at most D. Epsilon is divided as the variance is, so that the function is the same.
    """
    inverse = 1 / (tf.reduce_max(tf.abs(centered), axis=-1, keepdims=True) + _SMALLEST)  # (..., 1)
    centered = centered * inverse
    root = inverse * epsilon**0.5  # the square root first: 1e-6 has few digits in half precision
    return centered, tf.math.rsqrt(tf.reduce_mean(centered * centered, axis=-1, keepdims=True) + root * root)


def _rsqrt(centered, norm):
    """1 / sqrt(variance + epsilon) of centered tokens: (..., D) -> (..., 1).

    With `INTEGERS`, a variance is the product of a token with itself, whose sums are exact in 32-bit integers: squares
    in 8 bits have steps for the largest of them, and the small ones, which are most, would become 0.
    """
    if current_arithmetic() != INTEGERS:
        # Not tf.square: the converter would fuse it to SQUARED_DIFFERENCE, of which XNNPACK has no int8 kernel.
        return tf.math.rsqrt(tf.reduce_mean(centered * centered, axis=-1, keepdims=True) + norm.epsilon)
    *axes, width = centered.shape
    # Two tensors: GPU delegates do not multiply one by itself. The normalization of queries and keys has heads, too.
    rows, columns = (tf.reshape(centered, (1, math.prod(axes), *shape)) for shape in ((1, width), (width, 1)))
    sums = tf.matmul(rows, columns)  # (1, B N, 1, 1)
    return tf.reshape(_piecewise_rsqrt(sums, [1.0], norm, width), (*axes, 1))


def _piecewise_rsqrt(sums, weights, norm, count: int):
    """1 / sqrt(sum(weights sums) / count + epsilon) within the range of `signatures.measure_square_sums`."""
    low, high = norm.square_sums
    return piecewise(sums, weights, lambda x: (x / count + norm.epsilon) ** -0.5, low, high)


def piecewise(x, weights, function, low: float, high: float):
    """function(sum(weights x)), linear between 17 points: (B, h, w, n) -> (B, h, w, 1).

    Each of 16 ramps climbs from 0 to 6 between two points, with all 256 levels of an 8-bit tensor. The points are a
    geometric series, because the functions are powers and logarithms; beyond its ends the result is constant.

    Args:
        x: (B, h, w, n).
        weights: (n,) constants.
        function: Function of an array, convex and falling.
        low, high: Ends of the range of the sum, positive.
    """
    points = np.geomspace(low, high, _PIECES + 1)
    values, between = function(points), function((points[1:] + points[:-1]) / 2)
    # Chords lie above the function: half of the largest error on each side.
    gaps = np.pad((values[1:] + values[:-1]) / 2 - between, 1, "edge")
    values = values - (gaps[1:] + gaps[:-1]) / 4
    slopes = 6 / np.diff(points)
    ramps = _convolution(x, np.asarray(weights)[:, None] * slopes, -points[:-1] * slopes)
    ramps = tf.nn.relu6(ramps, name=RAMPS)
    return _convolution(ramps, np.diff(values)[:, None] / 6, values[:1])


def _convolution(x, kernel, bias):
    """1 x 1, (B, h, w, n) -> (B, h, w, m). A matrix product would become a multiplication where n is 1."""
    kernel, bias = (tf.constant(array, "float32") for array in (kernel[None, None], bias))
    return tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "VALID"), bias)


def softmax_times(logits, value):
    """softmax(logits) value: (B, K, n, N), (B, K, N, d) -> (B, K, n, d).

    An 8-bit softmax has steps of 1/256, more than most of the weights of 197 tokens. Here exponentials, of which the
    largest is 1, are divided by the square root of their sum before the product with the values, and again after it.
    The first division is a subtraction from the exponents: a quotient would be rounded a second time, and all small
    ones of a row alike.
    """
    length = logits.shape[-1]
    exponents = logits - tf.reduce_max(logits, axis=-1, keepdims=True)

    def exponentials(x):
        # ELU is e^x - 1 below 0; `ranges.fixed_ranges` sets the ranges.
        return tf.nn.elu(x, name=EXPONENTIALS) + 1

    def of_sums(function):
        return piecewise(exponentials(exponents), np.ones(length), function, 1, max(length, 2))  # (B, K, n, 1)

    root = of_sums(lambda x: x**-0.5)
    weights = exponentials(exponents + of_sums(lambda x: -np.log(x) / 2))
    return tf.matmul(weights, value) * root
