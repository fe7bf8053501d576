"""How long .tflite files take on this machine's CPU, and what in them: LiteRT with XNNPACK, a process for each file."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from keras_vit.export.benchmark.op_profile import OperationTime, last_words, profile_operations, worker_command
from keras_vit.export.tflite.delegation import delegation
from keras_vit.export.tflite.graph import read_graph

ROUND = 10  # calls of one file before it is the next one's turn


@dataclass(frozen=True)
class Benchmark:
    """What `benchmark` measured.

    Args:
        path: The file.
        size_bytes: On disk.
        threads, runs, warmup: As they were asked for.
        load_ms: Reading the file and preparing its kernels.
        first_ms: The first call.
        median_ms, p90_ms: Of the timed calls, milliseconds.
        peak_memory_bytes: Most memory of the process that ran it, the file's mapped pages with it.
        base_memory_bytes: The same before it opened the file: Python, NumPy, LiteRT.
        operations: Of the file's main subgraph.
        delegated: Of those, run by XNNPACK.
        partitions: Pieces that XNNPACK got. More than one means hand-overs in between.
        profile: Times by kind of operation, longest first; empty if there are none.
        profile_missing: Why there are none, or "".
    """

    path: str
    size_bytes: int
    threads: int
    runs: int
    warmup: int
    load_ms: float
    first_ms: float
    median_ms: float
    p90_ms: float
    peak_memory_bytes: int
    base_memory_bytes: int
    operations: int
    delegated: int
    partitions: int
    profile: tuple[OperationTime, ...]
    profile_missing: str


def benchmark(
    path, threads: int = 2, runs: int = 50, warmup: int = 5, profile: bool = True, seed: int = 0
) -> Benchmark:
    """Measures a .tflite file as `compare` does.

    Args:
        path: The file.
        threads, runs, warmup, profile, seed: See `compare`.

    Raises:
        ValueError: A bad number, or the file is empty, something else, broken, or cannot run here.
        OSError: There is no such file.
    """
    return compare([path], threads, runs, warmup, profile, seed)[0]


def compare(
    paths: Sequence, threads: int = 2, runs: int = 50, warmup: int = 5, profile: bool = True, seed: int = 0
) -> list[Benchmark]:
    """Measures .tflite files side by side, in turns of ten calls (A B A B), so that a busy machine is fair to all.

    Every file runs in a process of its own with nothing but LiteRT: its peak memory is the file's, and a crash stays
    there. Only the call is timed, not copying the image in and the result out. Inputs are random pixels of the dtype
    that the file takes. Of a file with several signatures, the one of its first subgraph runs.

    The times by operation are LiteRT's own profiler's, from one more process with LiteRT 2's compiled model on the
    same CPU kernels. They are whole microseconds, so that very short operations count as 0, and their sum is not the
    median: measuring takes time, and so does what is between operations. Use their shares.

    Args:
        paths: The files.
        threads: Of the interpreter.
        runs: Timed calls of each file.
        warmup: Calls before them, at least one.
        profile: Whether to take times by operation; a fifth of `runs`, at least ten.
        seed: Of the pixels.

    Returns:
        One result for each file, in their order.

    Raises:
        ValueError: A bad number, or a file is empty, something else, broken, or cannot run here.
        OSError: There is no such file.
    """
    for name, value in (("threads", threads), ("runs", runs), ("warmup", warmup)):
        if value < 1:
            raise ValueError(f"`{name}` must be 1 or more. Received: {value}")
    if isinstance(paths, (str, Path)) or not paths:
        raise ValueError(f"`paths` must be a list of .tflite files. Received: {paths!r}")
    splits = [_split(path) for path in paths]
    timed = _time(paths, threads, runs, warmup, seed)
    results = []
    for path, split, (milliseconds, measured) in zip(paths, splits, timed):
        times, missing = (), "not asked for"
        if profile:
            times, missing = profile_operations(path, threads, max(10, runs // 5), seed)
        results.append(
            Benchmark(
                path=str(path),
                size_bytes=Path(path).stat().st_size,
                threads=threads,
                runs=runs,
                warmup=warmup,
                median_ms=float(np.median(milliseconds)),
                p90_ms=float(np.percentile(milliseconds, 90)),
                operations=len(split.delegated) + len(split.left),
                delegated=len(split.delegated),
                partitions=split.partitions,
                profile=times,
                profile_missing=missing,
                **measured,
            )
        )
    return results


def table(benchmarks: Sequence[Benchmark], top: int = 5) -> str:
    """A table of results, and the operations of each file that take longest."""
    names = [Path(result.path).name for result in benchmarks]
    if len(set(names)) < len(names):
        names = [result.path for result in benchmarks]
    width = max(map(len, names), default=0)
    lines = [f"{'file':<{width}}  median ms   p90 ms  first ms  size MB  memory MB  XNNPACK"]
    for name, result in zip(names, benchmarks):
        lines.append(
            f"{name:<{width}}  {result.median_ms:>9.2f}  {result.p90_ms:>7.2f}  {result.first_ms:>8.2f}"
            f"  {result.size_bytes / 1e6:>7.1f}  {result.peak_memory_bytes / 1e6:>9.1f}"
            f"  {result.delegated} of {result.operations} in {result.partitions}"
        )
    lines.append("memory: of the process at its peak. XNNPACK: operations that it runs, and in how many pieces.")
    for name, result in zip(names, benchmarks):
        lines.append(f"\n{name}, by kind of operation:")
        if result.profile_missing:
            lines.append(f"  no times: {result.profile_missing}")
        for item in result.profile[:top]:
            line = f"  {item.share:>6.1%}  {item.milliseconds:>8.3f} ms  {item.count:>4} x {item.operation}"
            lines.append(line if item.delegated else line + "  (not XNNPACK)")
    return "\n".join(lines)


def as_json(benchmarks: Sequence[Benchmark]) -> str:
    """All figures, for programs: a list with an object for each file."""
    return json.dumps([asdict(result) for result in benchmarks], indent=2) + "\n"


def _split(path):
    operations = read_graph(path)
    try:
        return delegation(path, operations)
    except RuntimeError as error:
        raise ValueError(f"{path} cannot run here: {str(error).strip()}") from None


def _time(paths, threads, runs, warmup, seed):
    """The milliseconds of each file's calls, and what else its worker measured: fields of `Benchmark`."""
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker("time", path, threads, warmup, seed)) for path in paths]
        # One after the other: a file must not load while another one warms up.
        ready = [worker.answer() for worker in workers]
        milliseconds = [[] for _ in paths]
        for start in range(0, runs, ROUND):
            for number, worker in enumerate(workers):
                answer = worker.answer(min(ROUND, runs - start))
                milliseconds[number] += answer["milliseconds"]
                ready[number]["peak_memory_bytes"] = answer["peak_memory_bytes"]
    return list(zip(milliseconds, ready))


class _Worker:
    """A process of benchmark_worker.py, started when it is first asked."""

    def __init__(self, mode, path, *numbers):
        self.path = path
        self.errors = tempfile.TemporaryFile("w+")
        self.command = worker_command(mode, path, *numbers)
        self.process = None

    def answer(self, *request):
        """Sends a number, or starts the process, and returns its answer."""
        if self.process is None:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True)
        try:
            for number in request:
                print(number, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise ValueError(f"{self.path} cannot run here: {last_words(self.process.wait(), self.errors)}")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.errors.close()
