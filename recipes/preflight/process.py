"""The compiler in a process of its own: its environment, its memory and its crashes stay there."""

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

# libtpu looks for the machine that it is on: it must believe in one, and ask nobody.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # there is no chip that two compilers could fight for
}
NOT_INHERITED = ("TPU_NAME", "TPU_LIBRARY_PATH", "TPU_LOAD_LIBRARY", "XLA_FLAGS", "LIBTPU_INIT_ARGS")


class CompilerKilled(ChildProcessError):
    """The system ended the compiler, as it does where memory is short."""


@contextmanager
def compiling(hlo: bytes, topology: str, replicas: int):
    """`compiler.compile_program` at work in another process, which does not outlive the `with` block.

    Yields:
        A function that waits for the answer, with what that took as "peak_memory" and "seconds". It tells `say`, its
        argument, every few seconds how long it has been. Raises ValueError: the topology is unknown to libtpu.
        ChildProcessError: the compiler crashed, and the message ends with what it said, or, CompilerKilled, the system
        ended it.

    Raises:
        ImportError: jax or libtpu is missing, or of another version.
    """
    compiler.check_versions()
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED} | ENVIRONMENT
    with tempfile.TemporaryDirectory(prefix="keras_vit-preflight-") as folder:
        folder = Path(folder)
        (folder / "program.hlo").write_bytes(hlo)
        (folder / "job.json").write_text(json.dumps({"topology": topology, "replicas": replicas}))
        # -P: the files beside compiler.py are no modules of its own.
        command = [sys.executable, "-P", compiler.__file__, str(folder)]
        with open(folder / "errors.txt", "w") as errors:
            process = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors, start_new_session=True)
        try:
            yield functools.partial(_answer, process, folder, topology)
        finally:
            if process.poll() is None:  # Ctrl-C, too: nothing is left running
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def compile_elsewhere(hlo: bytes, topology: str, replicas: int, say=lambda text: None) -> dict:
    """The answer of `compiling`, waited for."""
    with compiling(hlo, topology, replicas) as answer:
        return answer(say)


def _answer(process, folder, topology, say):
    started = (folder / "job.json").stat().st_mtime
    while True:
        try:
            status = process.wait(timeout=2)
            break
        except subprocess.TimeoutExpired:
            say(f"compiling for {topology}, {time.time() - started:.0f} s")
    if status:
        raise _failure(status, (folder / "errors.txt").read_text().strip())
    result = json.loads((folder / "result.json").read_text())
    result["schedule"] = (folder / "schedule.txt").read_text()
    # It may have ended long before it was waited for.
    return {**result, "seconds": (folder / "result.json").stat().st_mtime - started}


def _failure(status, said):
    if status == -signal.SIGKILL:
        return CompilerKilled(
            "The TPU's compiler was killed, most likely because this machine has no memory left. Close other programs, "
            "or compile on a machine with more."
        )
    if status == 1 and "libtpu has no topology" in (said.splitlines() or [""])[-1]:
        return ValueError(said.splitlines()[-1])
    return ChildProcessError(f"The TPU's compiler ended with status {status}. Its last words:\n{said[-2000:]}")
