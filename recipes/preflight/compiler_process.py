"""Runs the compiler in a separate process, which isolates its environment, memory and crashes."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from keras_vit.recipes.preflight import compiler

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
        process) and "seconds". It logs the elapsed time every few seconds. It raises ValueError if libtpu does not know
        the topology, CompilerKilled if the system killed the compiler, and ChildProcessError, with the last output, if
        it crashed.

    Raises:
        ImportError: jax or libtpu is missing or has an untested version.
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
            log(f"compiling for {topology}, {time.time() - started:.0f} s")
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
