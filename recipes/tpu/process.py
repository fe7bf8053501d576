"""The compiler in a process of its own: its environment, its memory and its crashes stay there."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from keras_vit.recipes.tpu import compiler

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


def compile_elsewhere(hlo: bytes, topology: str, replicas: int, say=lambda text: None) -> dict:
    """`compiler.compile_program` in another process; "peak_memory" and "seconds" are what that took.

    Args:
        say: Is told every few seconds how long it has taken.

    Raises:
        ValueError: The topology is unknown to libtpu.
        ImportError: jax or libtpu is missing, or of another version.
        ChildProcessError: The compiler crashed, and the message ends with what it said, or the system killed it.
    """
    compiler.check_versions()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="keras_vit-preflight-") as folder:
        folder = Path(folder)
        (folder / "program.hlo").write_bytes(hlo)
        (folder / "job.json").write_text(json.dumps({"topology": topology, "replicas": replicas}))
        with open(folder / "errors.txt", "w+") as errors:
            _run(folder, errors, lambda: say(f"compiling for {topology}, {time.monotonic() - started:.0f} s"))
        result = json.loads((folder / "result.json").read_text())
        result["schedule"] = (folder / "schedule.txt").read_text()
    return {**result, "seconds": time.monotonic() - started}


def _run(folder, errors, tick):
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED} | ENVIRONMENT
    # -P: the files beside compiler.py are no modules of its own.
    command = [sys.executable, "-P", compiler.__file__, str(folder)]
    process = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors, start_new_session=True)
    try:
        while True:
            try:
                status = process.wait(timeout=2)
                break
            except subprocess.TimeoutExpired:
                tick()
    except BaseException:  # Ctrl-C, too: nothing is left running
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if status == -signal.SIGKILL:
        raise ChildProcessError(
            "The TPU's compiler was killed, most likely because this machine has no memory left. Close other programs, "
            "or compile on a machine with more."
        )
    if status:
        errors.seek(0)
        said = errors.read().strip()
        if status == 1 and said.splitlines()[-1:] and "libtpu has no topology" in said:
            raise ValueError(said.splitlines()[-1])
        raise ChildProcessError(f"The TPU's compiler ended with status {status}. Its last words:\n{said[-2000:]}")
