"""Keeps log lines of native libraries from standard error that no setting turns off: TFLite's converter, LiteRT."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

# Lines of absl's and TensorFlow's loggers below errors, what follows them, and empty lines.
NOISE = re.compile(rb"[IW]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IW] |INFO: |WARNING: All log messages before absl|\s*$")


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
