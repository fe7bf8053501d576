"""The process of a command: closed pipes, SIGTERM, log lines of native libraries, warnings. Standard library only."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

TERMINATED_STATUS = 128 + signal.SIGTERM  # as a shell reports a process that SIGTERM ended
# Python drops an exception that is raised while a garbage collection calls back, as in JAX: it is raised again then.
REPEAT_SECONDS = 1.0
# Lines of absl's and TensorFlow's loggers below errors, what follows them, and empty lines.
# And TensorFlow's advice on a function for each of several models, which are traced once each.
LOG_LINES = (
    rb"[IW]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IW] |INFO: |WARNING: All log messages before absl|\s*$"
    rb"|WARNING:tensorflow:\d+ out of the last \d+ calls "
)
# Reads on after a reader of its output has gone, such as `head`, so that writing to it never fails.
LOG_FILTER = f"""
import os, re, sys
for line in sys.stdin.buffer:
    if not re.match({LOG_LINES!r}, line):
        try:
            os.write(1, line)
        except OSError:
            pass
"""
# What weights do not state: warnings of keras_vit.images.pixel_range and keras_vit.models.load, which import Keras.
CATEGORIES = ("PixelRangeWarning", "ImageSizeWarning")
ASSUMED = ".*does not state (how its pixels are scaled|the size of its images)"
ARGUMENT = 'preprocessing="imagenet", "clip", "half" or a dict'
SIZE_ARGUMENT, SIZE_OPTION = "pass image_size=...", "pass --image-size"
OPTION = "--preprocessing imagenet, clip, half, pixels or FILE.json to the command that uses the model"


class UntilClosed:
    """A text stream that discards what is written after its reader, such as `head`, has closed the pipe.

    Also after its terminal has gone or its disk is full, with a note on standard error. Characters that it cannot
    encode are escaped.
    """

    def __init__(self, stream):
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes; once the pipe is closed, without effect."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._discard(error)
            return len(text)
        except UnicodeEncodeError:  # a file's name that is not of the stream's encoding
            encoding = self._stream.encoding
            return self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def flush(self):
        """Flushes; once the pipe is closed, without effect."""
        try:
            self._stream.flush()
        except OSError as error:
            self._discard(error)

    def _discard(self, error):
        # The file descriptor itself: what is still buffered, TensorFlow's own messages and child processes use it, too.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            with suppress(OSError):
                os.write(2, f"\nNote: output is lost from here on: {error}\n".encode())

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


@contextmanager
def clean_up_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into a SystemExit with `TERMINATED_STATUS`; a second one ends the process at once.

    By default they end a process without any clean-up, and the hidden folder in which an export was being written
    remains. Training has its own handler, which saves a checkpoint, see `StopSignals` of keras_vit.recipes.
    """

    def end(number, _):
        signal.setitimer(signal.ITIMER_REAL, REPEAT_SECONDS)
        if number != signal.SIGALRM:
            signal.signal(number, signal.SIG_DFL)
        elif isinstance(sys.exc_info()[1], SystemExit):
            return  # not lost: the clean-up is running
        raise SystemExit(TERMINATED_STATUS)

    numbers = [signal.SIGTERM, signal.SIGALRM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup sets it
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    except SystemExit as stopped:
        if stopped.code == TERMINATED_STATUS:
            print("\nTerminated.", file=sys.stderr)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def without_native_logs() -> Iterator[None]:
    """Removes the log lines from what is written to standard error, in a process that an abort of this one survives.

    The file descriptor is replaced, since native libraries do not use `sys.stderr`.
    """
    sys.stderr.flush()
    # In a session of its own: Ctrl-C must not end it. -S, -E: it starts within milliseconds.
    command = [sys.executable, "-S", "-E", "-c", LOG_FILTER]
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


@contextmanager
def printing_assumptions() -> Iterator[None]:
    """Prints each warning of an assumption once, with options in place of Python's arguments."""
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=ASSUMED)
        show, printed = warnings.showwarning, set()

        def show_once(message, category, *where, **more):
            if category.__name__ not in CATEGORIES:
                show(message, category, *where, **more)
            elif str(message) not in printed:
                printed.add(str(message))
                text = str(message).replace(ARGUMENT, OPTION).replace(SIZE_ARGUMENT, SIZE_OPTION)
                print(f"Note: {text}", file=sys.stderr)

        warnings.showwarning = show_once
        yield
