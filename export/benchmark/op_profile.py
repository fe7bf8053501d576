"""Times of the operations of a .tflite file by kind, from LiteRT's profiler in a separate process."""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
# The tables of the profiler's summary. "Summary by node type" has LiteRT's own operations: name, count, average ms. It
# merges XNNPACK's kernels of different partitions; "Delegate Statistics" does not: name, calls, ..., total us.
_NODE = re.compile(r"^ *(\S.*?) +(\d+) +([\d.]+) +[\d.]+% +[\d.]+% ", re.M)
_KERNEL = re.compile(r"^Delegate/(.+?) +(\d+) +[\d.]+ +\d+ +\d+ +(\d+)$", re.M)


@dataclass(frozen=True)
class OperationTime:
    """Time of all operations of one kind.

    Args:
        operation: XNNPACK's kernel, such as "Fully Connected (NC, F32) GEMM", or TFLite's name, such as
            "STRIDED_SLICE", for what XNNPACK does not run.
        count: Number of operations of this kind in the file.
        milliseconds: Time of all of them in one call.
        fraction: Fraction of the sum over all kinds, in [0, 1].
        delegated: Whether XNNPACK runs it.
    """

    operation: str
    count: int
    milliseconds: float
    fraction: float
    delegated: bool


def worker_command(mode: str, path, *numbers: int) -> list[str]:
    """The command that starts worker.py, whose docstring lists the numbers."""
    return [sys.executable, "-P", str(WORKER), mode, str(path), *map(str, numbers)]


def profile_operations(path, num_threads: int, num_runs: int, seed: int) -> tuple[tuple[OperationTime, ...], str]:
    """Profiles a file with LiteRT 2's compiled model on the CPU.

    Args:
        path: The file.
        num_threads: Threads of XNNPACK.
        num_runs: Profiled calls, after two that are not.
        seed: Seed of the random pixels.

    Returns:
        The times, longest first, and ""; or no times and the reason.
    """
    with tempfile.TemporaryFile("w+") as errors:
        command = worker_command("profile", path, num_threads, num_runs, seed)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        if done.returncode:
            return (), error_summary(done.returncode, errors)
    times = read_profile(done.stdout, num_runs)
    return times, "" if times else "the profiler's tables could not be parsed"


def read_profile(text: str, num_runs: int) -> tuple[OperationTime, ...]:
    """Parses the summary of LiteRT's profiler, longest first.

    Args:
        text: Output of `LiteRtGetProfileSummary`.
        num_runs: Number of profiled calls.
    """
    nodes, _, kernels = text.partition("Summary by node type")[2].partition("Delegate Statistics")
    found = [
        (name, int(calls) // num_runs, int(us) / num_runs / 1000, True) for name, calls, us in _KERNEL.findall(kernels)
    ]
    for name, count, average in _NODE.findall(nodes):
        if not name.startswith("Delegate/"):
            found.append((name, int(count), int(count) * float(average), False))
    total = sum(item[2] for item in found) or 1.0  # a toy model may take less than a microsecond
    found.sort(key=lambda item: -item[2])
    return tuple(
        OperationTime(name, count, milliseconds, milliseconds / total, delegated)
        for name, count, milliseconds, delegated in found
    )


def error_summary(status: int, errors) -> str:
    """How a process ended, with the last line of its standard error, an open file."""
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip() and not line.startswith(("INFO", "WARNING"))]
    end = f"its process ended with signal {-status}" if status < 0 else f"its process ended with status {status}"
    return ": ".join([end, *lines[-1:]])
