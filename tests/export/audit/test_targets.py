"""Limits of accelerators that exported files do not reach, on hand-made operations."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_vit.export.audit.targets import gpu, litert2
from keras_vit.export.tflite.graph import Operation, Tensor

SLICE = {"shrinkAxisMask": 0, "ellipsisMask": 0, "newAxisMask": 0}


def tensor(*shape, dtype="float32", values=None, index=None):
    data = None if values is None else np.frombuffer(np.array(values, dtype).tobytes(), "uint8")
    return Tensor(id(shape) if index is None else index, "t", dtype, shape, data)


def operation(name, inputs, output, **options):
    return Operation(0, 0, name, False, tuple(inputs), (output,), SimpleNamespace(**options))


def reshaped(target, name, before, after, expected, *more, **options):
    """One operation of a first input and an output of these shapes."""
    return target, operation(name, [tensor(*before), *more], tensor(*after), **options), expected


ONE = tensor(1, 4, 8, index=1)
CASES = [
    (gpu, operation("SOFTMAX", [ONE], ONE, beta=2.0), "Received: 2.0"),
    (gpu, operation("STRIDED_SLICE", [ONE], ONE, **{**SLICE, "newAxisMask": 1}), "new axes"),
    (gpu, operation("SUB", [ONE, ONE], ONE), "the same tensor"),
    (gpu, operation("ADD", [tensor(1, -1, 8), ONE], ONE), "open axis"),
    reshaped(gpu, "SLICE", (4, 8), (4, 4), "3 or 4 axes"),
    reshaped(litert2, "RESHAPE", (1, 4, 8), (4, 8), "computed at run time", tensor(2, dtype="int32")),
    reshaped(litert2, "MEAN", (1, 4, 8), (1, 8), "computed at run time", tensor(1, dtype="int32")),
    reshaped(gpu, "ADD", (1, 2, 4, 8), (1, 2, 4, 8), None, tensor(1, 8)),
    reshaped(gpu, "ADD", (1, 2, 4, 8), (1, 2, 4, 8), None, tensor(1, 4, 8)),
    reshaped(gpu, "ADD", (2, 4, 8), (2, 4, 8), "different ranks", tensor(4, 8)),
]


@pytest.mark.parametrize("target,tested,reason", CASES)
def test_reason(target, tested, reason):
    found = target(tested)
    assert found is None if reason is None else reason in found
