"""Compiles the steps of a recipe or a model, or reads their stored results, and reports them.

The compiler runs in a separate process, which isolates its environment, memory and crashes.
"""

import functools
import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tensorflow.compiler.xla.service import hlo_pb2

from keras_vit.recipes.preflight import compiler
from keras_vit.recipes.preflight.live_tensors import layer_name, peak_live_tensors
from keras_vit.recipes.preflight.report import StepReport, Topology
from keras_vit.recipes.preflight.step_programs import StepPrograms
from keras_vit.recipes.remote_files import write_file
from keras_vit.weights.downloads import cache_dir

# Compiler errors that depend on the program alone; others may be due to the state of this machine.
REPRODUCIBLE = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")


def compile_steps(
    programs: StepPrograms, kinds: tuple[str, ...], batch_size: int, topology: Topology, log
) -> tuple[StepReport, ...]:
    """Compiles the steps in parallel, each traced while others compile.

    If the machine runs out of memory, they are compiled one after the other. `batch_size` is that of a device.
    """
    try:
        return _in_parallel(programs, kinds, batch_size, topology, log)
    except CompilerKilled:  # two compilers may need too much memory together
        if len(kinds) == 1:
            raise
        return tuple(_in_parallel(programs, (kind,), batch_size, topology, log)[0] for kind in kinds)


def _in_parallel(programs, kinds, batch_size, topology, log):
    with ExitStack() as compilers:
        waits = [_start(programs, kind, batch_size, topology, log, compilers) for kind in kinds]
        return tuple(wait() for wait in waits)


def _start(programs, kind, batch_size, topology, log, compilers):
    """Starts the compiler, unless the result is stored. Returns a function that waits for the report."""
    log(f"tracing the {kind} step, {batch_size} images per device")
    program = programs.lower(kind, batch_size)
    # Only training communicates between devices.
    replicas = topology.replicas if kind == "training" else 1
    chip = topology.chip
    step = StepReport(
        kind=kind,
        batch_size=batch_size,
        memory_limit=chip.memory,
        peak_flops=chip.peak_flops,
        bandwidth=chip.bandwidth,
    )
    if program.problems:
        return lambda: replace(step, problems=program.problems)
    key = cache_key(program.hlo, topology.name, replicas, compiler.check_versions())
    stored = read_result(key)
    if stored is not None:
        return lambda: _filled(step, stored | {"seconds": 0.0})
    wait = compilers.enter_context(compiler_process(program.hlo, topology.name, replicas, program.partitioned))
    return lambda: _filled(step, _store(key, wait(log)))


def _store(key, result):
    schedule = result.pop("schedule")
    if schedule:
        result["layers"] = peak_live_tensors(schedule)[1]
    if "error" not in result or any(kind in result["error"] for kind in REPRODUCIBLE):
        write_result(key, result)
    return result


def _filled(step, result) -> StepReport:
    """The report of a step with what the compiler found."""
    cost = {"compile_seconds": result["seconds"], "compiler_memory": result["peak_memory"]}
    if "error" in result:
        return replace(step, **cost, problems=(_problem(result["error"]),))
    layers = tuple((layer, size) for layer, size in result["layers"])
    return replace(step, **cost, **{name: result[name] for name in ("memory", "flops", "bytes")}, layer_memory=layers)


def _problem(error):
    """The compiler's message without its internal details, plus the layers it names and a fix."""
    message = error.partition("\n")[0].partition("HLO module:")[0].strip()
    layers = [layer_name(name) for name in re.findall(r'op_name="([^"]+)"', error)]
    if any(layers):
        message += f" Layers: {', '.join(dict.fromkeys(filter(None, layers)))}."
    if "RESOURCE_EXHAUSTED" in message:
        message += " Use fewer images per device (--largest-batch finds how many), or run.remat='block' for a ViT."
    return message


def cache_folder() -> Path:
    """keras_vit/preflight in KERAS_HOME, which defaults to ~/.keras."""
    return cache_dir() / "preflight"


def cache_key(hlo: bytes, *conditions) -> str:
    """Hash of a program without its names, of the conditions (topology, versions, ...), and of `compiler.py`.

    Names contain counters of the models and functions created before, so they are removed. Layers named in a stored
    result may therefore be those of another model with an equal program.
    """
    module = hlo_pb2.HloModuleProto.FromString(hlo)
    for computation in module.computations:
        computation.name = ""
        for instruction in computation.instructions:
            instruction.name = ""
            instruction.ClearField("metadata")
    module.name = module.entry_computation_name = ""
    module.ClearField("id")
    rest = json.dumps([Path(compiler.__file__).read_text(), *conditions])
    return hashlib.sha256(module.SerializeToString(deterministic=True) + rest.encode()).hexdigest()


def read_result(key: str) -> dict | None:
    """The result stored under a key, or None if there is none or it is damaged."""
    try:
        return json.loads((cache_folder() / f"{key}.json").read_text())
    except (OSError, json.JSONDecodeError):
        return None


def write_result(key: str, result: dict):
    """Stores a result atomically; logs why it cannot, if the cache is read-only or full."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_file(cache_folder() / f"{key}.json", json.dumps(result))
    except OSError as error:
        logging.getLogger(__name__).warning("The program is compiled again next time: %s", error)


# libtpu queries the machine it runs on: describe a TPU VM, and skip the metadata server.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no chip is attached, so there is nothing to lock
}
REMOVED_VARIABLES = ("TPU_NAME", "TPU_LIBRARY_PATH", "TPU_LOAD_LIBRARY", "XLA_FLAGS", "LIBTPU_INIT_ARGS")


class CompilerKilled(ChildProcessError):
    """The system killed the compiler, as it does when out of memory."""


@contextmanager
def compiler_process(hlo: bytes, topology: str, replicas: int, partitioned: bool = False):
    """Starts `compiler.compile_program` in another process, which ends with the `with` block at the latest.

    Yields:
        A function `wait(log)` that returns the result of `compile_program`, plus its cost: "peak_memory" (bytes of the
        process) and "seconds". It logs every few seconds that it compiles. It raises ValueError if libtpu does not know
        the topology, CompilerKilled if the system killed the compiler, and ChildProcessError, with the last output, if
        it crashed.
    """
    compiler.check_versions()
    environment = {name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES} | ENVIRONMENT
    with tempfile.TemporaryDirectory(prefix="keras_vit-preflight-") as temporary:
        folder = Path(temporary)
        (folder / "program.hlo").write_bytes(hlo)
        job = {"topology": topology, "replicas": replicas, "partitioned": partitioned}
        (folder / "job.json").write_text(json.dumps(job))
        # -P: do not import the files next to compiler.py as top-level modules.
        command = [sys.executable, "-P", compiler.__file__, str(folder)]
        with open(folder / "errors.txt", "w") as errors:
            process = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors, start_new_session=True)
        try:
            yield functools.partial(_wait, process, folder, topology)
        finally:
            if process.poll() is None:  # also after Ctrl-C
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def compile_in_subprocess(
    hlo: bytes, topology: str, replicas: int, log=lambda text: None, partitioned: bool = False
) -> dict:
    """The result of `compiler_process`, waited for."""
    with compiler_process(hlo, topology, replicas, partitioned) as wait:
        return wait(log)


def _wait(process, folder, topology, log):
    started = (folder / "job.json").stat().st_mtime
    while True:
        try:
            status = process.wait(timeout=2)
            break
        except subprocess.TimeoutExpired:
            log(f"compiling for {topology}")
    if status:
        raise _failure(status, (folder / "errors.txt").read_text().strip())
    result = json.loads((folder / "result.json").read_text())
    result["schedule"] = (folder / "schedule.txt").read_text()
    # The process may have ended long before this call.
    return {**result, "seconds": (folder / "result.json").stat().st_mtime - started}


def _failure(status, output):
    if status == -signal.SIGKILL:
        return CompilerKilled(
            "The TPU's compiler was killed, most likely because this machine is out of memory. Close other programs, "
            "or use a machine with more memory."
        )
    if status == 1 and "libtpu has no topology" in (output.splitlines() or [""])[-1]:
        return ValueError(output.splitlines()[-1])
    return ChildProcessError(f"The TPU's compiler exited with status {status}. Last output:\n{output[-2000:]}")
