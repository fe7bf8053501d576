"""Compiles a .tflite file for a chip: Qualcomm's here, with figures of memory traffic; others through `aot_compile`."""

import contextlib
import importlib
import io
import os
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from keras_vit.atomic_write import write_file
from keras_vit.export.findings import NPU, Finding, counted
from keras_vit.export.npu.chips import Chip, NpuReport, check_machine, check_sdk, litert_file, qualcomm_libraries
from keras_vit.export.tflite.graph import Operation, read_graph

DISPATCH = "DISPATCH_OP"  # LiteRT's custom operation that runs a program on an NPU
# Lines of `apply_plugin_main` and of Qualcomm's compiler.
PARTITIONED = re.compile(
    r"Partitioned subgraph<(\d+)>, selected (\d+) ops, from a total of \d+ ops\. resulted in (\d+) partitions"
)
# Once per partition: ====== DDR bandwidth summary ======
TRAFFIC = re.compile(r"\b(spill|fill|write_total|read_total)_bytes=(\d+)")
FIELDS = {"read_total": "read_bytes", "write_total": "written_bytes", "spill": "spilled_bytes", "fill": "filled_bytes"}
UNSUPPORTED = re.compile(r"LiteRT Op #(\d+) '\w+' \(code=\d+\) is not supported")
CAUSE = re.compile(r"<E> (.+)")
CONSEQUENCE = re.compile(r"Failed to validate op|validateOpConfig failed|^Requested I/O|^Supported I/O|^Please refer")
TOO_OLD = re.compile(r"incorrect Value (\d+), expected >= (\d+)")  # versions of the NPU
# The compiler names an operation after the index of its origin in the file.
NOT_CREATED = re.compile(r'LiteRt_OpId_(\d+)" generated: ([^\n]+)')
ERROR = re.compile(r"\[ ERROR \]\s*(?:\S+\.cc:\d+:+)?(?:ERROR:|<E>)?\s*([^\n]+)")
BLOCKS = "Unsupported quantization type"  # of weights with a scale for each block of inputs
HARMLESS = "unexpected GraphHtpSettings option"  # of a newer plug-in than compiler; compiles all the same
# DeiT-Ti does not compile in any format with float operations, and does in int8 (onnxruntime-qnn 2.7.0).
INTEGERS_ONLY = ("SM8350",)


def compile_for_npu(file, chip: Chip, output=None) -> NpuReport:
    """Compiles a .tflite file for the NPU of a chip, with the vendor's compiler, on this machine.

    Latency on the chip is not known: Qualcomm's compiler estimates none for these chips. Memory traffic is that of the
    compiler's plan.

    Args:
        file: The .tflite file.
        chip: See `find_chip`.
        output: Where to save the compiled file; its folder must exist, and an existing file is replaced once the new
            one is complete. Nothing is saved if the file does not compile. None does not save it.

    Raises:
        ValueError: The file is not a .tflite file, damaged, or compiled already. This machine has no compiler.
        ImportError: A package with the vendor's compiler is missing.
        OSError: The file does not exist, or `output` cannot be written.
    """
    check_machine()
    operations = read_compilable(file)
    check_sdk(chip.vendor)
    with tempfile.TemporaryDirectory(prefix="keras-vit-npu-") as folder:
        start = time.perf_counter()
        compiler = _compile_for_qualcomm if chip.vendor == "qualcomm" else compile_with_litert
        text, compiled = compiler(Path(file), chip, Path(folder))
        seconds = time.perf_counter() - start
        on_npu, num_partitions = partitions(text)
        if compiled is None:
            error, left = failure(text, chip, operations)
            return NpuReport(str(file), chip, len(operations), 0, 0, left, error, seconds)
        content = compiled.read_bytes()
    if output:
        write_file(output, content)
    left = operations_left(text, chip, operations)
    counts = traffic(text)
    return NpuReport(
        str(file), chip, len(operations), on_npu, num_partitions, left, None, seconds, len(content), **counts
    )


def read_compilable(file) -> list[Operation]:
    """The operations of a file; ValueError or OSError for a file that `compile_for_npu` does not take."""
    operations = read_graph(file)
    if any(operation.name == DISPATCH for operation in operations):
        raise ValueError(f"{file} is compiled for an NPU already. Pass the file that it was compiled from.")
    return operations


def _compile_for_qualcomm(file: Path, chip: Chip, folder: Path) -> tuple[str, Path | None]:
    """The compiler's output, and the compiled file or None. `aot_compile` would discard the output."""
    compiled = folder / "compiled.tflite"
    with qualcomm_libraries() as path:
        done = subprocess.run(
            [
                litert_file("tools", "apply_plugin_main"),
                "--cmd=apply",
                f"--model={file.absolute()}",
                f"--o={compiled}",
                "--soc_manufacturer=Qualcomm",
                f"--soc_model={chip.model}",
                f"--libs={litert_file('vendors', 'qualcomm', 'compiler')}",
                "--err=--",
            ],
            env={**os.environ, "LD_LIBRARY_PATH": path},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    text = done.stdout + (f"\n[ ERROR ] the compiler was ended by signal {-done.returncode}" * (done.returncode < 0))
    return text, compiled if not done.returncode and compiled.is_file() and compiled.stat().st_size else None


def compile_with_litert(file: Path, chip: Chip, folder: Path) -> tuple[str, Path | None]:
    """Compiles with LiteRT's `aot_compile`, which finds the vendor's package itself.

    Returns:
        What LiteRT tells of the compiler's output, in its words, and the compiled file or None.
    """
    vendor = f"ai_edge_litert.aot.vendors.{chip.vendor}"
    importlib.import_module(f"{vendor}.{chip.vendor}_backend")  # registers the compiler
    target = importlib.import_module(f"{vendor}.target")
    aot = importlib.import_module("ai_edge_litert.aot.aot_compile")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        result = aot.aot_compile(str(file), output_dir=folder, target=target.Target(target.SocModel(chip.model)))
    if not result.models:
        return "\n".join(_read_log(message) for _, message in result.failed_backends), None
    [model, *_] = result.models
    lines = [
        f"Partitioned subgraph<{stats.subgraph_index}>, selected {stats.num_ops_offloaded} ops, from a total of "
        f"{stats.num_total_ops} ops. resulted in {stats.num_partitions_offloaded} partitions."
        for stats in model.partition_stats.subgraph_stats
    ]
    return "\n".join(lines), model.path


def _read_log(message: str) -> str:
    """The output that LiteRT's message of a failure refers to; it leaves the file in the folder for temporary files."""
    if not (found := re.search(r"See (\S+\.error) for details", message)):
        return message
    log = Path(found[1])
    text = log.read_text(errors="replace")
    log.unlink()
    return text


def partitions(text: str) -> tuple[int, int]:
    """Number of operations on the NPU and of its programs, in all subgraphs."""
    found = PARTITIONED.findall(text)
    return sum(int(selected) for _, selected, _ in found), sum(int(count) for *_, count in found)


def traffic(text: str) -> dict[str, int]:
    """Bytes by the fields of `NpuReport`, of all programs together; empty where the compiler reports none."""
    totals: dict[str, int] = {}
    for name, count in TRAFFIC.findall(text):
        totals[FIELDS[name]] = totals.get(FIELDS[name], 0) + int(count)
    return totals


def operations_left(text: str, chip: Chip, operations: Sequence[Operation]) -> tuple[Finding, ...]:
    """The operations that the compiler leaves to the CPU, with its reasons."""
    operations_read, start = [], 0
    causes: dict[tuple[str, str], Counter[str]] = {}
    by_place = {(operation.subgraph, operation.index): operation for operation in operations}
    for partitioned in PARTITIONED.finditer(text):
        segment, number, end = text[start : partitioned.start()], int(partitioned[1]), 0
        for match in UNSUPPORTED.finditer(segment):
            operation = by_place[number, int(match[1])]
            operations_read.append(operation)
            # The compiler's lines are cut off at times, so operations of one kind share their most frequent cause.
            kind = causes.setdefault((operation.name, operation.dtype), Counter())
            kind.update(cause for cause in CAUSE.findall(segment[end : match.start()]) if not CONSEQUENCE.search(cause))
            end = match.end()
        # The plug-in names no operation with 4-bit weights and float activations, but runs none of them.
        number_left = sum(place[0] == number for place in by_place) - int(partitioned[2])
        if sum(operation.subgraph == number for operation in operations_read) < number_left:
            operations_read += [one for one in operations if one.subgraph == number and one.hybrid and _bits4(one)]
        start = partitioned.end()
    return counted(NPU + chip.model, [(operation, _reason(operation, causes)) for operation in operations_read])


def failure(text: str, chip: Chip, operations: Sequence[Operation]) -> tuple[str, tuple[Finding, ...]]:
    """Why a file does not compile, in a sentence, and the operations that the compiler names."""
    blocks = [operation for operation in operations if operation.hybrid and _bits4(operation)]
    if BLOCKS in text and blocks:
        reason = "4-bit weights with a scale for each block of inputs; export int8 or int16x8"
        return f"The compiler reports: {BLOCKS}.", counted(
            NPU + chip.model, [(operation, reason) for operation in blocks]
        )
    first = {operation.index: operation for operation in operations if not operation.subgraph}
    reasons = [
        (first[int(index)], message.strip()) for index, message in NOT_CREATED.findall(text) if int(index) in first
    ]
    messages = [message.strip() for message in ERROR.findall(text) if HARMLESS not in message]
    lacking = [message for message in messages if "no properties registered" in message]
    cause = (lacking or messages or text.strip().splitlines()[-1:] or ["the compiler does not say why"])[0]
    sentence = f"The compiler reports: {cause}."
    if chip.model in INTEGERS_ONLY and any(operation.dtype.startswith("float") for operation in operations):
        sentence += f" The NPU of {chip} has integer operations only: export the format int8."
    return sentence, counted(NPU + chip.model, reasons)


def _bits4(operation: Operation) -> bool:
    return operation.inputs[1].dtype == "int4"


def _reason(operation: Operation, causes) -> str:
    if operation.hybrid and _bits4(operation):
        return "float activations with 4-bit weights; export int8 or int16x8"
    if operation.hybrid:
        return "float activations with integer weights; export float16, int8 or int16x8"
    kind = causes[operation.name, operation.dtype]
    if not kind:
        return "the compiler does not say why"
    cause = kind.most_common(1)[0][0].strip()
    if version := TOO_OLD.search(cause):
        later = " (Snapdragon 8 Gen 2, SM8550)" if version[2] == "73" else ""
        return (
            f"requires a Hexagon V{version[2]} NPU or later{later}, and this chip has a V{version[1]}; export int8 or "
            "float16"
        )
    return re.sub(r" in the node '\w+'", "", cause)
