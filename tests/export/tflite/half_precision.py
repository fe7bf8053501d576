"""Runs a .tflite file of a ViT in NumPy as a GPU may: every value and every partial sum in half precision."""

import numpy as np
from scipy.special import erf

from keras_vit.export.tflite.graph import read_graph

HALF = np.float16


def run_in_half(path, image):
    """The first output of a file for one image (H, W, 3) in [0, 255]."""
    values, image = {}, image[None].astype(HALF)
    for operation in read_graph(path):  # the only tensor that no operation computes is the image
        inputs = [_constant(one) if one.constant else values.get(one.index, image) for one in operation.inputs]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what a GPU does, too
            outputs = OPERATIONS[operation.name](*inputs, **_options(operation))
        for tensor, output in zip(operation.outputs, outputs if isinstance(outputs, list) else [outputs]):
            assert output.dtype == HALF and output.shape == tensor.shape, operation
            values[tensor.index] = output
    return output


def _constant(tensor):
    stored = tensor.values()
    return stored.astype(HALF) if stored.dtype.kind == "f" else stored


def _options(operation):
    if operation.name == "BATCH_MATMUL":
        return {"left": operation.options.adjX, "right": operation.options.adjY}
    if operation.name == "SPLIT":
        return {"count": operation.options.numSplits}
    if operation.name == "CONCATENATION":
        return {"axis": operation.options.axis}
    return {"shape": operation.outputs[0].shape} if operation.name in ("RESHAPE", "FULLY_CONNECTED") else {}


def _sum(x):
    """Sum over the last axis from first to last, each partial sum rounded: (..., D) -> (...)."""
    return np.add.accumulate(x, axis=-1, dtype=HALF)[..., -1]


def _mean(x, axes):
    assert list(axes.ravel() % x.ndim) == [x.ndim - 1]
    return (_sum(x) / HALF(x.shape[-1]))[..., None]


def _product(x, y):
    """(..., n, k), (..., k, m) -> (..., n, m)."""
    return _sum(x[..., :, None, :] * np.swapaxes(y, -1, -2)[..., None, :, :])


def _batch_matmul(x, y, left, right):
    return _product(np.swapaxes(x, -1, -2) if left else x, np.swapaxes(y, -1, -2) if right else y)


def _fully_connected(x, weights, bias=None, *, shape):
    y = _product(x.reshape(-1, x.shape[-1]), weights.T)
    return (y if bias is None else y + bias).reshape(shape)


def _patches(x, kernel, bias):
    """CONV_2D whose stride is the size of its kernel, (C, P, P, 3)."""
    size, (_, height, width, _) = kernel.shape[1], x.shape
    x = x.reshape(height // size, size, width // size, size, 3).swapaxes(1, 2)
    y = _product(x.reshape(height // size, width // size, -1), kernel.reshape(len(kernel), -1).T)
    return (y + bias)[None]


def _softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / _sum(e)[..., None]


def _gelu(x):
    return (x * HALF(0.5) * (1 + erf(x.astype("float32") / 2**0.5))).astype(HALF)


OPERATIONS = {
    "ABS": np.abs,
    "ADD": np.add,
    "BATCH_MATMUL": _batch_matmul,
    "CONCATENATION": lambda *x, axis: np.concatenate(x, axis),
    "CONV_2D": _patches,
    "DEQUANTIZE": lambda x: x,
    "DIV": np.divide,
    "FULLY_CONNECTED": _fully_connected,
    "GELU": _gelu,
    "MEAN": _mean,
    "MUL": np.multiply,
    "REDUCE_MAX": lambda x, axes: x.max(axis=tuple(axes.ravel()), keepdims=True),
    "RESHAPE": lambda x, _, shape: x.reshape(shape),
    "RSQRT": lambda x: (1 / np.sqrt(x)).astype(HALF),
    "SLICE": lambda x, start, size: x[tuple(slice(a, a + n) for a, n in zip(start, size))],
    "SOFTMAX": _softmax,
    "SPLIT": lambda axis, x, count: np.split(x, count, int(axis)),
    "SQUARE": np.square,
    "SUB": np.subtract,
    "TRANSPOSE": np.transpose,
}
