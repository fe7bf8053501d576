"""Ranges with zero point 0 where XNNPACK requires them: the right operand of a product of two int8 tensors.

XNNPACK multiplies two int8 tensors only if the zero point of the right one is 0
(`src/subgraph/batch-matrix-multiply.c`; LiteRT 2.1.3 and later). Otherwise LiteRT's own kernel runs, which is many
times slower.
"""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.tflite.flatbuffer import unpack_model

_Code = schema.BuiltinOperator
# Operations whose outputs have the scale of this input.
_SAME_SCALE = {_Code.SPLIT: 1, _Code.TRANSPOSE: 0, _Code.RESHAPE: 0, _Code.SLICE: 0, _Code.STRIDED_SLICE: 0}


def symmetric_ranges(float32: bytes, ranges: dict[str, dict]) -> dict[str, dict]:
    """The ranges, with those of right operands widened to [-128 a, 127 a]: their int8 zero point is 0.

    Right operands are keys, values, and with `arithmetic.INTEGERS` the centered tokens.

    Args:
        float32: The content of the .tflite file that `ranges` belong to.
        ranges: See `calibration.activation_ranges`.
    """
    model = unpack_model(float32)
    codes = [code.builtinCode for code in model.operatorCodes]
    changed = dict(ranges)
    for graph in model.subgraphs:
        producers = {output: one for one in graph.operators for output in one.outputs}
        waiting = [int(one.inputs[1]) for one in graph.operators if codes[one.opcodeIndex] == _Code.BATCH_MATMUL]
        while waiting:
            index = waiting.pop()
            name = graph.tensors[index].name.decode()
            if name in ranges:
                changed[name] = _symmetric(ranges[name])
            producer = producers.get(index)
            if producer is not None and codes[producer.opcodeIndex] in _SAME_SCALE:
                waiting.append(int(producer.inputs[_SAME_SCALE[codes[producer.opcodeIndex]]]))
    return changed


def _symmetric(ends):
    step = np.maximum(-ends["min"] / 128, ends["max"] / 127)
    return {"min": -128 * step, "max": 127 * step}
