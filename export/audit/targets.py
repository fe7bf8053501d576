"""Operations that each accelerator supports, and its limits, from the source code and manuals of the delegates.

The tables do not know a device's driver and chip, the runtime version of an app, or whether results are correct and
fast there: only a run on the device does. Each function returns the first reason why an operation is not supported, or
None.
"""

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
    if operation.name == "FULLY_CONNECTED" and operation.version > 9:
        return "integer weights with a scale per channel; export float16"
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
