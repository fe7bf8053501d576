"""SIGTERM during a command: temporary files and folders are removed, as after Ctrl-C, before the process ends."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STATUS = 128 + signal.SIGTERM  # as a shell reports a process that SIGTERM ended
# Python drops an exception that is raised while a garbage collection calls back, as in JAX: it is raised again then.
REPEAT_SECONDS = 1.0


@contextmanager
def clean_up_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into a SystemExit with `STATUS`; a second one ends the process at once.

    By default SIGTERM ends a process without any clean-up, and the hidden folder in which an export was being written
    remains. Training has its own handler, which saves a checkpoint, see `StopSignals` of keras_vit.recipes.
    """
    if threading.current_thread() is not threading.main_thread():  # only there can handlers be set
        yield
        return

    def end(number, _):
        signal.setitimer(signal.ITIMER_REAL, REPEAT_SECONDS)
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        elif isinstance(sys.exc_info()[1], SystemExit):
            return  # not lost: the clean-up is running
        raise SystemExit(STATUS)

    previous = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGALRM)}
    try:
        yield
    except SystemExit as stopped:
        if stopped.code == STATUS:
            print("\nTerminated.", file=sys.stderr)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)
