"""Standard output and error that may be closed: `keras-vit train ... | head` does not end a training."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class UntilClosed:
    """A text stream that discards what is written after its reader has closed the pipe."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes; once the pipe is closed, without effect."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)

    def flush(self):
        """Flushes; once the pipe is closed, without effect."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self):
        # The file descriptor itself: what is still buffered, TensorFlow's own messages and child processes use it, too.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def surviving_closed_pipes() -> Iterator[None]:
    """Replaces `sys.stdout` and `sys.stderr` by streams that survive a closed pipe."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and UntilClosed(stream) for stream in streams)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream:
                stream.flush()
        sys.stdout, sys.stderr = streams
