"""Measures latency and memory of .tflite files with LiteRT and XNNPACK, each file in a separate process."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_vit.export.tflite.graph import read_delegation, read_graph

__all__ = ["Benchmark", "compare", "table"]

WORKER = Path(__file__).with_name("worker.py")
RUNS_PER_TURN = 10  # consecutive calls of one file before the next file's turn


@dataclass(frozen=True)
class Benchmark:
    """Result of `compare` for one file.

    Args:
        path: The file.
        size_bytes: Size on disk.
        num_threads, num_runs, warmup_runs: The arguments of `compare`.
        load_ms: Time to read the file and prepare its kernels.
        first_ms: Latency of the first call.
        median_ms, p90_ms: Median and 90th percentile of the timed calls, milliseconds.
        peak_memory_bytes: Peak resident memory of the process, with the mapped pages of the file.
        base_memory_bytes: The same before the file was opened: Python, NumPy, LiteRT.
        num_operations: Operations of the first subgraph.
        num_delegated: Number of these that XNNPACK runs.
        num_partitions: Partitions that XNNPACK runs; more than one means transfers in between.
    """

    path: str
    size_bytes: int
    num_threads: int
    num_runs: int
    warmup_runs: int
    load_ms: float
    first_ms: float
    median_ms: float
    p90_ms: float
    peak_memory_bytes: int
    base_memory_bytes: int
    num_operations: int
    num_delegated: int
    num_partitions: int


def compare(paths: Sequence, num_threads: int = 2, num_runs: int = 50, warmup_runs: int = 5) -> list[Benchmark]:
    """Measures .tflite files side by side in turns of ten calls (A B A B), so that load on the machine affects all.

    Each file runs in a separate process with LiteRT alone: its peak memory is the file's, and a crash affects no other
    file. Only the call is timed, not copying the image in and the result out. Inputs are random: floats in [-1, 1],
    integers in the whole range of the file's dtype. If a file has several signatures, that of its first subgraph runs.

    Args:
        paths: The files.
        num_threads: Threads of the interpreter.
        num_runs: Timed calls of each file.
        warmup_runs: Calls before them, at least one.

    Returns:
        One result per file, in their order.

    Raises:
        ValueError: A number is below 1, or a file is empty, of another format, damaged, or cannot run on this machine.
        OSError: A file does not exist.
    """
    _check_request(paths, num_threads=num_threads, num_runs=num_runs, warmup_runs=warmup_runs)
    delegations = [_delegation(path) for path in paths]
    numbers = [str(num_threads), str(warmup_runs)]
    commands = [(path, [sys.executable, "-P", str(WORKER), str(path), *numbers]) for path in paths]
    results = []
    for path, delegation, (milliseconds, measured) in zip(paths, delegations, time_in_turns(commands, num_runs)):
        results.append(
            Benchmark(
                path=str(path),
                size_bytes=Path(path).stat().st_size,
                num_threads=num_threads,
                num_runs=num_runs,
                warmup_runs=warmup_runs,
                median_ms=float(np.median(milliseconds)),
                p90_ms=float(np.percentile(milliseconds, 90)),
                num_operations=len(delegation.delegated) + len(delegation.not_delegated),
                num_delegated=len(delegation.delegated),
                num_partitions=delegation.num_partitions,
                **measured,
            )
        )
    return results


def _check_request(paths, **numbers):
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"`{name}` must be 1 or more. Received: {value}")
    if isinstance(paths, (str, Path)) or not paths:
        raise ValueError(f"`paths` must be a list of .tflite files. Received: {paths!r}")


def table(benchmarks: Sequence[Benchmark]) -> str:
    """A table of the results."""
    names = [Path(result.path).name for result in benchmarks]
    if len(set(names)) < len(names):
        names = [result.path for result in benchmarks]
    width = max(map(len, names), default=0)
    lines = [f"{'file':<{width}}  median ms   p90 ms  first ms  size MB  memory MB  XNNPACK"]
    for name, result in zip(names, benchmarks):
        lines.append(
            f"{name:<{width}}  {result.median_ms:>9.2f}  {result.p90_ms:>7.2f}  {result.first_ms:>8.2f}"
            f"  {result.size_bytes / 1e6:>7.1f}  {result.peak_memory_bytes / 1e6:>9.1f}"
            f"  {result.num_delegated} of {result.num_operations} in {result.num_partitions}"
        )
    lines.append("memory: peak of the process. XNNPACK: delegated operations and number of partitions.")
    return "\n".join(lines)


def _delegation(path):
    operations = read_graph(path)
    try:
        return read_delegation(path, operations)
    except RuntimeError as error:
        raise ValueError(f"{path} cannot run on this machine: {str(error).strip()}") from None


def time_in_turns(commands: Sequence[tuple], num_runs: int) -> list[tuple[list[float], dict]]:
    """Per process, the milliseconds of its calls, and the other values of its replies.

    Args:
        commands: Name in errors, and command, of each process, which replies as worker.py does.
        num_runs: Timed calls of each process.

    Raises:
        ValueError: A process ended.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker(name, command)) for name, command in commands]
        # One after the other, so that no file loads while another warms up.
        measured = [worker.request() for worker in workers]
        milliseconds: list[list[float]] = [[] for _ in workers]
        for start in range(0, num_runs, RUNS_PER_TURN):
            for index, worker in enumerate(workers):
                reply = worker.request(min(RUNS_PER_TURN, num_runs - start))
                milliseconds[index] += reply.pop("milliseconds")
                measured[index] |= reply
    return list(zip(milliseconds, measured))


class _Worker:
    """A process, started at the first request."""

    def __init__(self, name, command):
        self.name, self.command = name, command
        self.errors = tempfile.TemporaryFile("w+")
        self.process = None

    def request(self, *numbers):
        """Sends numbers, or starts the process, and returns its reply."""
        if self.process is None:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True)
        try:
            for number in numbers:
                print(number, file=self.process.stdin, flush=True)
            line = next((line for line in self.process.stdout if line.startswith("{")), "")  # libraries print, too
        except BrokenPipeError:
            line = ""
        if not line:
            summary = _error_summary(self.process.wait(), self.errors)
            raise ValueError(f"{self.name} cannot run on this machine: {summary}")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.errors.close()


def _error_summary(status: int, errors) -> str:
    """How a process ended, with the last line of its standard error, an open file."""
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip() and not line.startswith(("INFO", "WARNING"))]
    end = f"its process ended with signal {-status}" if status < 0 else f"its process ended with status {status}"
    return ": ".join([end, *lines[-1:]])
