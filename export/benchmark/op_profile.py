"""What the kinds of operations of a .tflite file take, from LiteRT's own profiler in a process of its own."""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
# The profiler's tables. "Summary by node type" has LiteRT's operations: name, count, ms of one on average. It takes
# XNNPACK's kernels of different pieces for one; "Delegate Statistics" has them right: name, calls, ..., us in all.
_NODE = re.compile(r"^ *(\S.*?) +(\d+) +([\d.]+) +[\d.]+% +[\d.]+% ", re.M)
_KERNEL = re.compile(r"^Delegate/(.+?) +(\d+) +[\d.]+ +\d+ +\d+ +(\d+)$", re.M)


@dataclass(frozen=True)
class OperationTime:
    """What the operations of one kind take.

    Args:
        operation: XNNPACK's name of its kernel, "Fully Connected (NC, F32) GEMM"; TFLite's, "STRIDED_SLICE", for what
            XNNPACK left.
        count: Operations of this kind in the file.
        milliseconds: Of all of them, in one call.
        share: Of the sum over all kinds, in [0, 1].
        delegated: Whether XNNPACK runs it.
    """

    operation: str
    count: int
    milliseconds: float
    share: float
    delegated: bool


def worker_command(mode: str, path, *numbers: int) -> list[str]:
    """What starts benchmark_worker.py, which says what its numbers are."""
    return [sys.executable, "-P", str(WORKER), mode, str(path), *map(str, numbers)]


def profile_operations(path, threads: int, runs: int, seed: int) -> tuple[tuple[OperationTime, ...], str]:
    """Profiles a file with LiteRT 2's compiled model on the CPU.

    Args:
        path: The file.
        threads: Of XNNPACK.
        runs: Profiled calls, after two that are not.
        seed: Of the random pixels.

    Returns:
        The times, longest first, and ""; or nothing, and why.
    """
    with tempfile.TemporaryFile("w+") as errors:
        command = worker_command("profile", path, threads, runs, seed)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        if done.returncode:
            return (), last_words(done.returncode, errors)
    times = read_profile(done.stdout, runs)
    return times, "" if times else "the profiler's tables could not be read"


def read_profile(text: str, runs: int) -> tuple[OperationTime, ...]:
    """Reads the summary of LiteRT's profiler, longest first.

    Args:
        text: Of `LiteRtGetProfileSummary`.
        runs: Calls that were profiled.
    """
    nodes = text.partition("Summary by node type")[2].partition("Delegate Statistics")
    found = [(name, int(calls) // runs, int(us) / runs / 1000, True) for name, calls, us in _KERNEL.findall(nodes[2])]
    for name, count, average in _NODE.findall(nodes[0]):
        if not name.startswith("Delegate/"):
            found.append((name, int(count), int(count) * float(average), False))
    total = sum(item[2] for item in found) or 1.0  # a toy may take no whole microsecond
    found.sort(key=lambda item: -item[2])
    return tuple(
        OperationTime(name, count, milliseconds, milliseconds / total, delegated)
        for name, count, milliseconds, delegated in found
    )


def last_words(status: int, errors) -> str:
    """How a process ended, with the last line of its standard error, an open file."""
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip() and not line.startswith(("INFO", "WARNING"))]
    end = f"its process ended with signal {-status}" if status < 0 else f"its process ended with status {status}"
    return ": ".join([end, *lines[-1:]])
