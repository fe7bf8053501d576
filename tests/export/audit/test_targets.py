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


ONE = tensor(1, 4, 8, index=1)
CASES = [
    (gpu, operation("SOFTMAX", [ONE], ONE, beta=2.0), "beta must be 1. Received: 2.0"),
    (gpu, operation("STRIDED_SLICE", [ONE], ONE, **{**SLICE, "newAxisMask": 1}), "new axes are not supported"),
    (gpu, operation("SLICE", [tensor(4, 8)], tensor(4, 4)), "only tensors of 3 or 4 axes"),
    (gpu, operation("SUB", [ONE, ONE], ONE), "its two inputs are the same tensor"),
    (litert2, operation("RESHAPE", [ONE, tensor(2, dtype="int32")], tensor(4, 8)), "its shape is computed at run time"),
    (litert2, operation("MEAN", [ONE, tensor(1, dtype="int32")], tensor(1, 8)), "its axes are computed at run time"),
    (gpu, operation("ADD", [tensor(1, 2, 4, 8), tensor(1, 8)], tensor(1, 2, 4, 8)), None),
    (gpu, operation("ADD", [tensor(1, 2, 4, 8), tensor(1, 4, 8)], tensor(1, 2, 4, 8)), None),
    (gpu, operation("ADD", [tensor(2, 4, 8), tensor(4, 8)], tensor(2, 4, 8)), "different ranks"),
    (edgetpu, operation("SUM", [int8_tensor(1, 4, 8), axes(0)], int8_tensor(4, 8)), "SUM along the batch axis"),
    (edgetpu, operation("SUM", [int8_tensor(1, 4, 8), axes(1)], int8_tensor(1, 8)), None),
    (
        edgetpu,
        operation("SOFTMAX", [int8_tensor(4, 8)], int8_tensor(4, 8), beta=1.0),
        "only one vector of at most 16,000 values",
    ),
    (edgetpu, operation("SOFTMAX", [int8_tensor(1, 8)], int8_tensor(1, 8), beta=1.0), None),
    (
        edgetpu,
        operation("CONCATENATION", [int8_tensor(1, 8), int8_tensor(1, 2, values=[[0, 3]])], int8_tensor(1, 10)),
        "all zeros",
    ),
    (
        edgetpu,
        operation("CONCATENATION", [int8_tensor(1, 8), int8_tensor(1, 2, values=[[0, 0]])], int8_tensor(1, 10)),
        None,
    ),
    (
        edgetpu,
        operation("STRIDED_SLICE", [int8_tensor(1, 8), axes(0, 0), axes(1, 8), axes(1, 2)], int8_tensor(1, 4), **SLICE),
        "strides must be 1",
    ),
    (
        edgetpu,
        operation("CONV_2D", [int8_tensor(1, 8, 8, 3)], int8_tensor(1, 8, 8, 4), dilationWFactor=1, dilationHFactor=2),
        "its two dilations must be equal",
    ),
    (
        lambda one: nnapi(one, False),
        operation("ADD", [tensor(1, -1, 8), ONE], ONE),
        "has an open axis; export with a fixed batch",
    ),
]


@pytest.mark.parametrize("target,tested,reason", CASES)
def test_reason(target, tested, reason):
    found = target(tested)
    assert found is None if reason is None else reason in found
