"""Layer normalization of an exported graph, in a form for each kind of arithmetic. N tokens, D width."""

import math
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

from keras_vit.export.tflite.arithmetic import HALF, INTEGERS, current_arithmetic
from keras_vit.export.tflite.integer_forms import piecewise

_WATCHING: ContextVar[list | None] = ContextVar("watching", default=None)
# Added to the largest value of a token, which may be 0. Any number is exact; half precision has this one.
_SMALLEST = 2.0**-10


@contextmanager
def watch_norms():
    """Yields a list to which normalizations append (layer, sums of squares of centered tokens, (..., 1))."""
    token = _WATCHING.set(seen := [])
    try:
        yield seen
    finally:
        _WATCHING.reset(token)


def layer_norm(norm, tokens):
    """`LayerNorm` in the form of `arithmetic`: (..., D) -> (..., D). No mean is subtracted after `rotate_tokens`."""
    with tf.name_scope(norm.name):  # `quantize` recognizes normalizations by this name
        centered = getattr(norm, "centered", False)
        deviations = tokens if centered else tokens - tf.reduce_mean(tokens, axis=-1, keepdims=True)
        seen = _WATCHING.get()
        if seen is not None:
            seen.append((norm, tf.reduce_sum(deviations * deviations, axis=-1, keepdims=True)))
        if current_arithmetic() == HALF:
            deviations, rsqrt = _within_one(deviations, norm.epsilon)
        else:
            rsqrt = _rsqrt(deviations, norm)
        return deviations * rsqrt * norm.gamma + norm.beta


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
    in 8 bits have steps for the largest of them, and the small ones, which are most, would become 0. The root is
    `piecewise` within the range of `calibration.measure_square_sums`.
    """
    if current_arithmetic() != INTEGERS:
        # Not tf.square: the converter would fuse it to SQUARED_DIFFERENCE, of which XNNPACK has no int8 kernel.
        return tf.math.rsqrt(tf.reduce_mean(centered * centered, axis=-1, keepdims=True) + norm.epsilon)
    *axes, width = centered.shape
    # Two tensors: GPU delegates do not multiply one by itself. The normalization of queries and keys has heads, too.
    rows, columns = (tf.reshape(centered, (1, math.prod(axes), *shape)) for shape in ((1, width), (width, 1)))
    sums = tf.matmul(rows, columns)  # (1, N, 1, 1)
    low, high = norm.square_sums
    rsqrt = piecewise(sums, [1.0], lambda x: (x / width + norm.epsilon) ** -0.5, low, high)
    return tf.reshape(rsqrt, (*axes, 1))
