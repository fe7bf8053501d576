"""Limits of accelerators that exported files do not reach, on hand-made operations."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_vit.export.audit.targets import edgetpu, gpu, litert2, nnapi
from keras_vit.export.tflite.graph import Operation, Tensor

SLICE = {"shrinkAxisMask": 0, "ellipsisMask": 0, "newAxisMask": 0}


def tensor(*shape, dtype="float32", values=None, index=None):
    data = None if values is None else np.frombuffer(np.array(values, dtype).tobytes(), "uint8")
    return Tensor(id(shape) if index is None else index, "t", dtype, shape, data)


def operation(name, inputs, output, **options):
    return Operation(0, 0, name, False, tuple(inputs), (output,), SimpleNamespace(**options))


def int8_tensor(*shape, **more):
    return tensor(*shape, dtype="int8", **more)


def axes(*values):
    return tensor(len(values), dtype="int32", values=values)


def reshaped(target, name, before, after, expected, *more, **options):
    """One operation of a first input and an output of these shapes; int8 for the Edge TPU."""
    kind = int8_tensor if target is edgetpu else tensor
    return target, operation(name, [kind(*before), *more], kind(*after), **options), expected


ONE = tensor(1, 4, 8, index=1)
CHOSEN = (axes(0, 0), axes(1, 8), axes(1, 2))
CASES = [
    (gpu, operation("SOFTMAX", [ONE], ONE, beta=2.0), "Received: 2.0"),
    (gpu, operation("STRIDED_SLICE", [ONE], ONE, **{**SLICE, "newAxisMask": 1}), "new axes"),
    (gpu, operation("SUB", [ONE, ONE], ONE), "the same tensor"),
    (lambda one: nnapi(one, False), operation("ADD", [tensor(1, -1, 8), ONE], ONE), "open axis"),
    reshaped(gpu, "SLICE", (4, 8), (4, 4), "3 or 4 axes"),
    reshaped(litert2, "RESHAPE", (1, 4, 8), (4, 8), "computed at run time", tensor(2, dtype="int32")),
    reshaped(litert2, "MEAN", (1, 4, 8), (1, 8), "computed at run time", tensor(1, dtype="int32")),
    reshaped(gpu, "ADD", (1, 2, 4, 8), (1, 2, 4, 8), None, tensor(1, 8)),
    reshaped(gpu, "ADD", (1, 2, 4, 8), (1, 2, 4, 8), None, tensor(1, 4, 8)),
    reshaped(gpu, "ADD", (2, 4, 8), (2, 4, 8), "different ranks", tensor(4, 8)),
    reshaped(edgetpu, "SUM", (1, 4, 8), (4, 8), "batch axis", axes(0)),
    reshaped(edgetpu, "SUM", (1, 4, 8), (1, 8), None, axes(1)),
    reshaped(edgetpu, "SOFTMAX", (4, 8), (4, 8), "16,000", beta=1.0),
    reshaped(edgetpu, "SOFTMAX", (1, 8), (1, 8), None, beta=1.0),
    reshaped(edgetpu, "CONCATENATION", (1, 8), (1, 10), "all zeros", int8_tensor(1, 2, values=[[0, 3]])),
    reshaped(edgetpu, "CONCATENATION", (1, 8), (1, 10), None, int8_tensor(1, 2, values=[[0, 0]])),
    reshaped(edgetpu, "STRIDED_SLICE", (1, 8), (1, 4), "strides", *CHOSEN, **SLICE),
    reshaped(edgetpu, "CONV_2D", (1, 8, 8, 3), (1, 8, 8, 4), "dilations", dilationWFactor=1, dilationHFactor=2),
]


@pytest.mark.parametrize("target,tested,reason", CASES)
def test_reason(target, tested, reason):
    found = target(tested)
    assert found is None if reason is None else reason in found
