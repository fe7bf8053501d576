"""Keeps log lines of native libraries from standard error that no setting turns off: of absl, TFLite, LiteRT."""

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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

ABSL_ERROR = 2  # of absl::LogSeverityAtLeast; TF_CPP_MIN_LOG_LEVEL counts the same way


def log_errors_only():
    """Imports TensorFlow, and applies TF_CPP_MIN_LOG_LEVEL to absl's log in it, up to errors, which are always logged.

    TensorFlow reads the variable for its own log only: XLA's compiler and estimates of costs log by absl, to standard
    error. A TensorFlow that lacks the function logs as before.
    """
    import tensorflow as tf

    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
    with suppress(OSError, AttributeError, TypeError):
        # absl's functions are in a namespace with the date of its release.
        options = (Path(tf.sysconfig.get_include()) / "absl" / "base" / "options.h").read_text("utf-8")
        namespace = re.search(r"define ABSL_OPTION_INLINE_NAMESPACE_NAME (\w+)", options)[1]  # type: ignore[index]
        library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"))
        name = f"_ZN4absl{len(namespace)}{namespace}14SetMinLogLevelENS0_18LogSeverityAtLeastE"
        library[name](min(int(level), ABSL_ERROR) if level.isdigit() else 0)


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
