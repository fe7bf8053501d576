"""SIGTERM and Ctrl-C during training: remembered, so that the run can save before it ends."""

import os
import signal
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)
NOTICE = b"\nInterrupted: saving a checkpoint after the current step. Press Ctrl-C again to end without it.\n"


class StopSignals:
    """Handlers of SIGTERM and Ctrl-C that only remember the signal; a second Ctrl-C ends at once, as usual.

    Attributes:
        received: The signal that asks the run to stop, or None.
    """

    def __init__(self):
        self.received: signal.Signals | None = None
        self.previous: dict[signal.Signals, object] = {}

    def install(self):
        """Sets the handlers, if this is the main thread: Python allows no other."""
        if threading.current_thread() is threading.main_thread():
            self.previous = {number: signal.signal(number, self._receive) for number in SIGNALS}

    def release(self):
        """Restores the previous handlers."""
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        self.previous = {}

    def _receive(self, number, _):
        if number == signal.SIGINT:
            if self.received == signal.SIGINT:
                raise KeyboardInterrupt
            os.write(2, NOTICE)  # print() could have been interrupted by this signal itself
        self.received = signal.Signals(number)
