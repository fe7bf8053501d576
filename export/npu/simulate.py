"""Runs a file compiled for a Snapdragon's NPU on Qualcomm's HTP simulator, through onnxruntime-qnn.

What runs is the program in the compiled file itself, with its scales and roundings: an ONNX model of a single node,
EPContext, contains it. No operation is translated to ONNX.
"""

import functools
import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from keras_vit.export.npu.chips import NpuReport
from keras_vit.export.npu.compile import DISPATCH
from keras_vit.export.tflite.flatbuffer import read_signatures, unpack_model
from keras_vit.export.tflite.graph import as_input, dequantize, run_tflite

PROVIDER = "QNNExecutionProvider"


@dataclass(frozen=True)
class Simulation:
    """A compiled file on the simulator, beside the file that it was compiled from in LiteRT on this machine's CPU.

    Args:
        num_images: Number of images.
        agreement: Fraction of the images with the same top-1 class, in [0, 1].
        max_difference, mean_difference: Absolute differences of the probabilities.
        seconds: Of the simulator for an image; it says nothing of the chip's latency.
    """

    num_images: int
    agreement: float
    max_difference: float
    mean_difference: float
    seconds: float


def simulation_table(rows: Sequence[tuple[NpuReport, Simulation]]) -> str:
    """Simulations of several files and chips as a Markdown table."""
    lines = [
        "| file | chip | images | same top-1 class | largest difference | mean difference | simulator, per image |",
        "|---|---|---|---|---|---|---|",
    ]
    for report, found in rows:
        equal = f"{found.num_images:,} | {found.agreement:.1%}"
        difference = f"{found.max_difference:.4f} | {found.mean_difference:.6f}"
        lines.append(f"| {report.file} | {report.chip} | {equal} | {difference} | {found.seconds:.1f} s |")
    return "\n".join(lines)


def simulate(file, compiled, images) -> Simulation:
    """Compares a compiled file on the simulator with its origin on this machine's CPU.

    Args:
        file: A .tflite file of `write_tflite` with the signature "classify".
        compiled: The file that `compile_for_npu` made of it, for a chip of Qualcomm.
        images: (n, H, W, 3) of the model's size, pixels in [0, 255].

    Raises:
        ValueError: See `run_on_simulator`.
        ImportError: A package is missing.
    """
    expected, _ = run_tflite(file, images)
    start = time.perf_counter()
    outputs = run_on_simulator(compiled, images)
    seconds = (time.perf_counter() - start) / len(images)
    difference = np.abs(outputs - expected)
    agreement = (outputs.argmax(-1) == expected.argmax(-1)).mean()
    return Simulation(len(images), float(agreement), float(difference.max()), float(difference.mean()), seconds)


def run_on_simulator(compiled, images) -> np.ndarray:
    """Runs a compiled file on images (n, H, W, 3) in [0, 255], one at a time: (n, ...) float32.

    Raises:
        ValueError: The file was not compiled by `compile_for_npu` for a chip of Qualcomm, or has more than one program.
        ImportError: A package is missing.
    """
    content = Path(compiled).read_bytes()
    model = unpack_model(content)
    operators = [operator for graph in model.subgraphs for operator in graph.operators]
    if len(operators) != 1 or not _is_dispatch(model, operators[0]):
        raise ValueError(
            f"The simulator runs files that are one program for a chip of Qualcomm. Received: {compiled} with "
            f"{len(operators)} operations."
        )
    [signature] = read_signatures(model).values()
    [image], [output] = signature.inputs, signature.outputs
    session = _session(content, operators[0], image, output)
    results = []
    for pixels in np.asarray(images):
        [result] = session.run(None, {"images": as_input(pixels[None], image.dtype)})
        results.append(dequantize(result[0], output.quantization))
    return np.stack(results)


def _is_dispatch(model, operator) -> bool:
    code = model.operatorCodes[operator.opcodeIndex]
    return code.builtinCode == schema.BuiltinOperator.CUSTOM and bytes(code.customCode) == DISPATCH.encode()


def _session(content, operator, image, output):
    """A session of onnxruntime for the program that an operator refers to."""
    runtime, qnn, onnx = _packages()
    place = flexbuffers.Loads(bytes(operator.customOptions))
    program = content[place["bytecode_offset"] : place["bytecode_offset"] + place["bytecode_size"]]
    node = onnx.helper.make_node(
        "EPContext",
        ["images"],
        ["output"],
        domain="com.microsoft",
        name=place["name"],
        partition_name=place["name"],
        main_context=1,
        embed_mode=1,
        ep_cache_context=program,
        source=PROVIDER,
    )
    ends = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)), tensor.shape
        )
        for name, tensor in (("images", image), ("output", output))
    ]
    graph = onnx.helper.make_graph([node], "compiled", ends[:1], ends[1:])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors; the names of inputs differ, which does not matter with one
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    devices = [device for device in runtime.get_ep_devices() if device.ep_name == PROVIDER]
    options.add_provider_for_devices(devices[:1], {"backend_path": qnn.get_qnn_htp_path()})
    return runtime.InferenceSession(model.SerializeToString(), options)


@functools.cache
def _packages():
    """onnxruntime with Qualcomm's provider, onnxruntime_qnn and onnx."""
    try:
        runtime, qnn, onnx = map(importlib.import_module, ("onnxruntime", "onnxruntime_qnn", "onnx"))
    except ImportError as error:
        raise ImportError(
            f"The simulator requires onnxruntime-qnn: pip install 'vit-for-keras[npu]' ({error})."
        ) from error
    runtime.set_default_logger_severity(3)
    runtime.register_execution_provider_library(PROVIDER, qnn.get_library_path())
    return runtime, qnn, onnx
