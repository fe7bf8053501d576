"""Keeps log lines of native libraries from standard error that no setting turns off: of absl, TFLite, LiteRT."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Lines of absl's and TensorFlow's loggers below errors, what follows them, and empty lines.
NOISE = rb"[IW]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IW] |INFO: |WARNING: All log messages before absl|\s*$"
# Reads on after a reader of its output has gone, such as `head`, so that writing to it never fails.
FILTER = f"""
import os, re, sys
for line in sys.stdin.buffer:
    if not re.match({NOISE!r}, line):
        try:
            os.write(1, line)
        except BrokenPipeError:
            pass
"""


@contextmanager
def without_native_logs() -> Iterator[None]:
    """Removes the log lines from what is written to standard error, in a process that an abort of this one survives.

    The file descriptor is replaced, since native libraries do not use `sys.stderr`.
    """
    sys.stderr.flush()
    # In a session of its own: Ctrl-C must not end it. -S, -E: it starts within milliseconds.
    command = [sys.executable, "-S", "-E", "-c", FILTER]
    lines = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, start_new_session=True)
    before = os.dup(2)
    os.dup2(lines.stdin.fileno(), 2)  # type: ignore[union-attr]
    lines.stdin.close()  # type: ignore[union-attr]
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        with suppress(subprocess.TimeoutExpired):  # processes that were started meanwhile may keep it open
            lines.wait(timeout=5)
