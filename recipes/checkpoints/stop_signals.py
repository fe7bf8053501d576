"""SIGTERM and Ctrl-C during training: remembered, so that the run can save before it ends."""

import os
import signal
import threading
from contextlib import suppress

SIGNALS = (signal.SIGTERM, signal.SIGINT)
END = b"\0"  # in the pipe of signals' numbers, of which none is 0


class StopSignals:
    """Handlers of SIGTERM and Ctrl-C that only remember the signal; a second Ctrl-C ends at once, as usual.

    Python calls handlers after an execution of several steps, which may take long. What Ctrl-C does is printed before,
    by a thread that the system wakes at the signal.

    Attributes:
        received: The signal that asks the run to stop, or None.
    """

    def __init__(self):
        self.received: signal.Signals | None = None
        self.previous: dict[signal.Signals, object] = {}

    def install(self, steps_per_execution: int = 1):
        """Sets the handlers, if this is the main thread: Python allows no other."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.release()
        self.received = None
        steps = "step" if steps_per_execution == 1 else f"{steps_per_execution:,} steps"
        notice = f"\nStopping after the current {steps}, with a checkpoint. Press Ctrl-C again to end without it.\n"
        self.interrupts = 0
        source, self.wakeup = os.pipe()
        os.set_blocking(self.wakeup, False)
        self.previous_wakeup = signal.set_wakeup_fd(self.wakeup, warn_on_full_buffer=False)
        self.thread = threading.Thread(target=self._announce, args=(source, notice), daemon=True)
        self.thread.start()
        self.previous = {number: signal.signal(number, self._receive) for number in SIGNALS}

    def release(self):
        """Restores the previous handlers."""
        if not self.previous:
            return
        signal.set_wakeup_fd(self.previous_wakeup)
        os.write(self.wakeup, END)  # a forked process may have a copy of the pipe, so closing it is not enough
        self.thread.join()
        os.close(self.wakeup)
        previous, self.previous = self.previous, {}
        for number, handler in previous.items():  # last, so that a signal in between is only remembered
            signal.signal(number, handler)

    def _announce(self, source, notice):
        """Prints the notice at the first Ctrl-C; the system writes the number of each signal to `source`."""
        while (number := os.read(source, 1)) != END:
            if number[0] == signal.SIGINT:
                self.interrupts += 1
                if self.interrupts == 1:
                    _print(notice)
        os.close(source)

    def _receive(self, number, _):
        # Python calls a handler once for two signals during the same execution.
        if number == signal.SIGINT and (self.received == signal.SIGINT or self.interrupts > 1):
            raise KeyboardInterrupt
        self.received = signal.Signals(number)


def _print(notice: str):
    with suppress(OSError):  # a closed standard error, such as that of a pipe which Ctrl-C has ended, too
        os.write(2, notice.encode())  # print() may be waiting for the main thread
