"""Runs a .tflite file of a ViT in NumPy as a GPU may: every value and every partial sum in half precision."""

import numpy as np
from ai_edge_litert.schema_py_generated import ActivationFunctionType
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
            if getattr(operation.options, "fusedActivationFunction", 0) == ActivationFunctionType.RELU:
                outputs = np.maximum(outputs, HALF(0))
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
    if operation.name == "CONV_2D":
        return {"stride": operation.options.strideH, "shape": operation.outputs[0].shape}
    return (
        {"shape": operation.outputs[0].shape}
        if operation.name in ("RESHAPE", "FULLY_CONNECTED", "MEAN", "REDUCE_MAX", "STRIDED_SLICE")
        else {}
    )


def _sum(x):
    """Sum over the last axis from first to last, each partial sum rounded: (..., D) -> (...)."""
    return np.add.accumulate(x, axis=-1, dtype=HALF)[..., -1]


def _mean(x, axes, shape):
    axes = axes.ravel() % x.ndim
    x = np.moveaxis(x, axes, range(-len(axes), 0))
    x = x.reshape(*x.shape[: -len(axes)], -1)
    return (_sum(x) / HALF(x.shape[-1])).reshape(shape)


def _product(x, y):
    """(..., n, k), (..., k, m) -> (..., n, m)."""
    return _sum(x[..., :, None, :] * np.swapaxes(y, -1, -2)[..., None, :, :])


def _batch_matmul(x, y, left, right):
    return _product(np.swapaxes(x, -1, -2) if left else x, np.swapaxes(y, -1, -2) if right else y)


def _fully_connected(x, weights, bias=None, *, shape):
    y = _product(x.reshape(-1, x.shape[-1]), weights.T)
    return (y if bias is None else y + bias).reshape(shape)


def _convolution(x, kernel, bias=None, *, stride, shape):
    """CONV_2D of maps that are padded, if at all, as TensorFlow's "SAME" padding does."""
    size, (_, height, width, _) = kernel.shape[1:3], shape
    missing = [max((n - 1) * stride + k - old, 0) for n, k, old in zip((height, width), size, x.shape[1:3])]
    x = np.pad(x[0], [(count // 2, count - count // 2) for count in missing] + [(0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, size, (0, 1))[::stride, ::stride]  # (h, w, C, k, k)
    windows = windows[:height, :width].transpose(0, 1, 3, 4, 2).reshape(height, width, -1)
    y = np.stack([_product(row, kernel.reshape(len(kernel), -1).T) for row in windows])
    return (y if bias is None else y + bias)[None]


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
    "CONV_2D": _convolution,
    "DEQUANTIZE": lambda x: x,
    "DIV": np.divide,
    "FULLY_CONNECTED": _fully_connected,
    "GELU": _gelu,
    "MEAN": _mean,
    "MUL": np.multiply,
    "REDUCE_MAX": lambda x, axes, shape: x.max(axis=tuple(axes.ravel())).reshape(shape),
    "RESHAPE": lambda x, _, shape: x.reshape(shape),
    "RSQRT": lambda x: (1 / np.sqrt(x)).astype(HALF),
    "SLICE": lambda x, start, size: x[tuple(slice(a, a + n) for a, n in zip(start, size))],
    "SOFTMAX": _softmax,
    "SPLIT": lambda axis, x, count: np.split(x, count, int(axis)),
    "SQUARE": np.square,
    "STRIDED_SLICE": lambda x, start, *_, shape: x[tuple(slice(a, a + n) for a, n in zip(start, shape))],
    "SUB": np.subtract,
    "TRANSPOSE": np.transpose,
}
