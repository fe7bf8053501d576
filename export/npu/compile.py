"""Compiles a .tflite file for a chip: Qualcomm's here, with figures of memory traffic; others through `aot_compile`."""

import contextlib
import importlib
import io
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from keras_vit.atomic_write import write_file
from keras_vit.export.npu.chips import Chip
from keras_vit.export.npu.compiler_output import failure, operations_left, partitions, traffic
from keras_vit.export.npu.libraries import check_machine, check_sdk, litert_file, qualcomm_libraries
from keras_vit.export.npu.report import NpuReport
from keras_vit.export.tflite.graph import Operation, read_graph

DISPATCH = "DISPATCH_OP"  # LiteRT's custom operation that runs a program on an NPU


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
