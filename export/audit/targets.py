"""Operations that each accelerator supports, and its limits, from the source code and manuals of the delegates.

The tables do not know a device's driver and chip, the runtime version of an app, or whether results are correct and
fast there: only a run on the device does. Each function returns the first reason why an operation is not supported, or
None.
"""

import math

# Operations with a parser in the delegate of TFLite 2.20 / LiteRT 2, and the checks below:
# https://github.com/google-ai-edge/LiteRT/blob/main/tflite/delegates/gpu/common/model_builder.cc (NewOperationParser)
# https://github.com/google-ai-edge/LiteRT/blob/main/tflite/tools/versioning/gpu_compatibility.cc
# TensorFlow's Analyzer is no help: since 2.19 it reports every file as compatible, even with FlexErf
# (https://github.com/tensorflow/tensorflow/issues/77042).
GPU = frozenset(
    """ABS ADD ADD_N AVERAGE_POOL_2D BATCH_MATMUL CAST CONCATENATION CONV_2D COS CUMSUM DENSIFY DEPTHWISE_CONV_2D
    DEPTH_TO_SPACE DEQUANTIZE DIV ELU EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GELU GREATER
    GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGISTIC LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM
    MIRROR_PAD MUL NEG NOT_EQUAL ONE_HOT PACK PAD PADV2 POW PRELU QUANTIZE REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6
    RELU_0_TO_1 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SELECT SELECT_V2 SIGN SIN SLICE
    SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TILE TRANSPOSE
    TRANSPOSE_CONV UNPACK""".split()
)
_GPU_DTYPES = {"float32", "float16", "int8", "uint8"}
_GPU_OTHER_DTYPES = {  # GetOpsToReplace, the same file
    "CAST": {"bool", "int32"},
    "GATHER": {"int32"},
    "ONE_HOT": {"int32"},
    "SELECT": {"bool"},
    "SELECT_V2": {"bool"},
    "LOGICAL_AND": {"bool"},
    **{name: {"bool"} for name in ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")},
}
# LiteRT 2's GPU accelerator, ML Drift:
# https://github.com/google-ai-edge/LiteRT/blob/main/ml_drift_delegate/tflite/model_builder.cc (NewOperationParser).
# The limits below were confirmed with the WebGPU accelerator of ai-edge-litert 2.3.0 (CompiledModel, GPU only).
LITERT2 = (GPU - {"DENSIFY"}) | frozenset(
    """ARG_MAX ATAN2 BITCAST BITWISE_XOR CEIL DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP LOGICAL_NOT LOGICAL_OR REDUCE_ALL
    REDUCE_ANY REVERSE_V2 RIGHT_SHIFT ROUND TOPK_V2""".split()
)
# NNAPIDelegateKernel::Validate at API level 31 (Android 12) and later, where BATCH_MATMUL exists; NNAPI itself is
# deprecated from Android 15 on (https://developer.android.com/ndk/guides/neuralnetworks/migration-guide):
# https://github.com/google-ai-edge/LiteRT/blob/main/tflite/delegates/nnapi/nnapi_delegate.cc
NNAPI = frozenset(
    """ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND CAST CONCATENATION CONV_2D COS DENSIFY
    DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV ELU EMBEDDING_LOOKUP EQUAL EXP EXPAND_DIMS FILL FLOOR
    FULLY_CONNECTED GATHER GREATER GREATER_EQUAL HARD_SWISH L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL
    LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC LOG_SOFTMAX LSTM MAXIMUM MAX_POOL_2D
    MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2 POW PRELU QUANTIZE REDUCE_ANY REDUCE_MAX REDUCE_MIN
    REDUCE_PROD RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 RSQRT SELECT SIN
    SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM
    TANH TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV UNPACK""".split()
)
# "Supported operations", table 1, and "Model requirements" of https://coral.ai/docs/edgetpu/models-intro/. By default
# its compiler maps the first run of supported operations to the TPU and everything after it to the CPU.
EDGETPU = frozenset(
    """ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXPAND_DIMS FULLY_CONNECTED L2_NORMALIZATION LOGISTIC
    LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL PACK PAD PRELU QUANTIZE REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_N1_TO_1
    RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQUARED_DIFFERENCE SQUEEZE
    STRIDED_SLICE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM""".split()
)
# Reasons for operations that the interpreter did not delegate to
# https://github.com/google-ai-edge/LiteRT/blob/main/tflite/delegates/xnnpack/xnnpack_delegate.cc
# (ADD: a ratio of scales outside 1/1024 to 256). These tables explain only; the interpreter decides.
XNNPACK = {
    "BROADCAST_TO": "XNNPACK lacks it; with a fixed batch the converter folds it",
    "CAST": "XNNPACK casts between float32 and quantized dtypes only; feed the dtype of the first layer",
    "GATHER": "XNNPACK lacks it; an embedding of all positions is a constant, one row is a slice",
    "PACK": "XNNPACK lacks it; use CONCATENATION and RESHAPE",
    "TILE": "XNNPACK lacks it; with a fixed batch the converter folds it",
}
XNNPACK_INT8 = {
    "ADD": "the scales of inputs and output are too far apart for XNNPACK's int8; see --keep-float",
    **{
        name: f"XNNPACK's {name} supports float only; export dynamic-int8 or mixed-int8"
        for name in ("GELU", "RSQRT", "SOFTMAX")
    },
    # src/subgraph/batch-matrix-multiply.c; LiteRT 2.1.3 and later
    "BATCH_MATMUL": "XNNPACK requires zero point 0 of the right operand: quantize it with a range of [-128 a, 127 a]",
    "SQUARED_DIFFERENCE": "XNNPACK's SQUARED_DIFFERENCE supports float only; multiply the difference by itself",
    "QUANTIZE": "XNNPACK does not convert between uint8 and int8; export dynamic-int8 or mixed-int8",
}
XNNPACK_INT8["SUB"] = XNNPACK_INT8["MUL"] = XNNPACK_INT8["ADD"]
DROPS_AXIS = "it removes an axis (shrink_axis_mask), as x[:, 0] does; use x[:, :1] and a reshape"


def gpu(operation) -> str | None:
    """TFLite's GPU delegate (OpenCL, OpenGL, Metal), used by MediaPipe and older apps."""
    allowed = _GPU_DTYPES | _GPU_OTHER_DTYPES.get(operation.name, set())
    tensors = (*operation.runtime_inputs, *operation.outputs)
    if operation.name == "CAST" and "uint8" in (operation.inputs[0].dtype, operation.outputs[0].dtype):
        return "CAST of uint8; feed float32 images, or quantize the file so that QUANTIZE takes uint8"
    return (
        _unsupported_anywhere(operation, GPU)
        or _open_shape(operation)
        or _dtypes(tensors, allowed)
        or _any_gpu(operation)
        or _unequal_ranks(operation)
    )


def litert2(operation) -> str | None:
    """LiteRT 2's GPU accelerator; `CompiledModel` on GPU alone rejects a file with any unsupported operation."""
    allowed = _GPU_DTYPES | {"int32", "bool", "int4", "int2"}
    tensors = (*operation.inputs, *operation.outputs)
    return _unsupported_anywhere(operation, LITERT2) or _dtypes(tensors, allowed) or _any_gpu(operation)


def nnapi(operation, quantized: bool) -> str | None:
    """NNAPI's delegate; the driver of an NPU may support less, and integer NPUs support no float at all."""
    name, inputs = operation.name, operation.inputs
    reason = _unsupported_anywhere(operation, NNAPI) or _open_shape(operation)
    if reason:
        return reason
    if name == "BATCH_MATMUL" and (inputs[0].dtype != inputs[1].dtype or inputs[0].shape[:-2] != inputs[1].shape[:-2]):
        return "NNAPI's BATCH_MATMUL supports neither mixed dtypes nor broadcasting"
    if operation.hybrid:
        return "float activations with integer weights: integer NPUs require static ones; export int8 or int16x8"
    if quantized and operation.dtype == "float32" and name != "QUANTIZE":
        return "float32 in a quantized file: an integer NPU leaves it to the CPU, with a transfer before and after"
    return _dtypes(
        (*operation.runtime_inputs, *operation.outputs), {"float32", "float16", "int32", "int8", "uint8", "bool"}
    )


def edgetpu(operation) -> str | None:
    """Coral's Edge TPU: int8 and uint8 only, at most three axes longer than 1, no products of two activations."""
    if operation.custom or operation.name not in EDGETPU:
        return "not an operation of the Edge TPU"
    tensors = (*operation.runtime_inputs, *operation.outputs)
    for tensor in tensors:
        if math.prod(tensor.shape[:-3]) > 1:
            return f"{list(tensor.shape)}: only the three innermost axes may be longer than 1"
    allowed = {"int8", "uint8"} | ({"float32"} if operation.name == "QUANTIZE" else set())
    # Dtypes last, so that the audit of a float file shows what quantization would not fix.
    return _open_shape(operation) or _edgetpu_limits(operation) or _dtypes(tensors, allowed)


def _edgetpu_limits(operation):
    """Column "Known limitations" of the table."""
    name, inputs, output = operation.name, operation.inputs, operation.outputs[0]
    value = inputs[-1] if name == "SPLIT" else inputs[0]
    shape, rank = value.shape, len(value.shape)
    if name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "SPLIT"):
        index = inputs[0] if name == "SPLIT" else inputs[1]
        axes = {int(axis) % rank for axis in index.values().ravel()} if index.constant else {0}
        if name == "MEAN" and axes - set(range(1, rank - 1)):
            return f"MEAN of {list(shape)} over {sorted(axes)}: only height and width are supported"
        if rank > 1 and 0 in axes:
            return f"{name} along the batch axis"
    if name == "FULLY_CONNECTED" and (math.prod(output.shape[:-1]) > 1 or not inputs[1].constant):
        return "its output is more than one vector, or its weights are not constant; try a 1 x 1 CONV_2D"
    if name == "SOFTMAX" and (math.prod(shape[:-1]) > 1 or shape[-1] > 16000):
        return f"SOFTMAX of {list(shape)}: only one vector of at most 16,000 values is supported"
    if name == "CONCATENATION":
        constants = [tensor for tensor in inputs if tensor.constant]
        if constants and (len(inputs) != 2 or any(tensor.values().any() for tensor in constants)):
            return "a constant input must be all zeros, and one of two inputs"
    if name == "STRIDED_SLICE":
        options, strides = operation.options, inputs[3]
        if options.ellipsisMask or options.newAxisMask or not strides.constant or (strides.values() != 1).any():
            return "strides must be 1, without ellipsis and new axes"
    if name == "CONV_2D" and operation.options.dilationWFactor != operation.options.dilationHFactor:
        return "its two dilations must be equal"
    return None


def _unsupported_anywhere(operation, table):
    """Custom operations, operations that are not in the table, and tensors of more than four axes."""
    if operation.custom:
        flex = operation.name.startswith("Flex")
        return "a TensorFlow operation that requires the Flex library" if flex else "a custom operation"
    if operation.name not in table:
        return "not an operation of the delegate"
    for tensor in (*operation.inputs, *operation.outputs):
        if len(tensor.shape) > 4:
            return f"{list(tensor.shape)} has {len(tensor.shape)} axes; at most 4 are supported"
    return None


def _open_shape(operation):
    for tensor in (*operation.inputs, *operation.outputs):
        if -1 in tensor.shape:
            return f"{list(tensor.shape)} has an open axis; export with a fixed batch"
    return None


def _dtypes(tensors, allowed):
    wrong = sorted({tensor.dtype for tensor in tensors} - allowed)
    return f"{' and '.join(wrong)} is not supported; only {', '.join(sorted(allowed))}" if wrong else None


def _any_gpu(operation):
    """Limits that both GPU delegates share."""
    name, options, inputs = operation.name, operation.options, operation.inputs
    runtime = operation.runtime_inputs
    if name == "STRIDED_SLICE" and options.shrinkAxisMask:
        return DROPS_AXIS
    if name == "STRIDED_SLICE" and (options.ellipsisMask or options.newAxisMask):
        return "its ellipsis or new axes are not supported; reshape instead"
    if name in ("STRIDED_SLICE", "SLICE") and len(inputs[0].shape) not in (3, 4):
        return f"{list(inputs[0].shape)}: only tensors of 3 or 4 axes can be sliced"
    if name == "BATCH_MATMUL" and inputs[0].constant:
        return "its first input is a constant; only the second may be"
    if name in ("BATCH_MATMUL", "SUB", "DIV", "SQUARED_DIFFERENCE") and len({t.index for t in runtime}) < len(runtime):
        return "its two inputs are the same tensor"
    if name == "SOFTMAX" and options.beta != 1:
        return f"beta must be 1. Received: {options.beta}"
    if name == "RESHAPE" and len(runtime) != 1:
        return "its shape is computed at run time; export with a fixed batch"
    if name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN") and not inputs[1].constant:
        return "its axes are computed at run time"
    if name == "GATHER" and (inputs[1].dtype != "int32" or len(inputs[1].shape) != 1):
        return "its indices must be an int32 vector"
    return None


def _unequal_ranks(operation):
    """Broadcasting of ADD and MUL in the older delegate, see its `CheckAddMulBroadcastCompatibility`."""
    if operation.name not in ("ADD", "MUL"):
        return None
    short, long = sorted((tensor.shape for tensor in operation.inputs[:2]), key=len)
    if len(short) < 2 or len(short) == len(long):
        return None
    if len(long) == 4 and long[0] == 1 and (len(short) == 3 or short == (1, 1)):
        return None
    if len(long) == 4 and len(short) == 2 and (long[0], long[3]) == short:
        return None
    return f"{list(long)} and {list(short)} have different ranks; reshape to equal ones"
