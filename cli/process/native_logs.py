"""Keeps log lines of native libraries from standard error that no setting turns off: of absl, TFLite, LiteRT."""

import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Lines of absl's and TensorFlow's loggers below errors, what follows them, and empty lines.
NOISE = re.compile(rb"[IW]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IW] |INFO: |WARNING: All log messages before absl|\s*$")


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
    """Holds back what is written to standard error, and writes it at the end, also of an error, without the log lines.

    The file descriptor is replaced, since native libraries do not use `sys.stderr`.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        before = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            os.write(2, b"".join(line for line in held if not NOISE.match(line)))
