"""SIGTERM, SIGHUP and Ctrl-C in a training: it ends after the current steps, or soon if these do not return."""

import os
import select
import signal
import threading
import time
from contextlib import suppress

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # SIGHUP: the terminal or connection has gone
END = b"\0"  # in the pipe of signals' numbers, of which none is 0
# How long the main thread may stay in C++, such as in a step that waits for another machine, after SIGTERM and after a
# second Ctrl-C. A first step may compile for longer, but has nothing to save.
GRACE, AGAIN = 60.0, 10.0


class StopSignals:
    """Handlers of SIGTERM, SIGHUP and Ctrl-C that only remember the signal; a second Ctrl-C ends at once, as usual.

    Python calls handlers after an execution of several steps, which may take long, or for ever if it waits for a
    machine that is gone. What Ctrl-C does is printed before, by a thread that the system wakes at the signal; it also
    ends the process if no handler is called in time.
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
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
                self.previous[number] = signal.signal(number, self._receive)

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
        last, deadline = 0, None  # the signal that ends the process then
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([source], [], [], left)[0]:
                if last == signal.SIGINT or not self.received:
                    _print("\nThe current step does not return: the process ends without a checkpoint.\n")
                    os._exit(128 + last)
                deadline = None
                continue
            if (number := os.read(source, 1)) == END:
                break
            if number[0] != signal.SIGINT:
                last, deadline = number[0], time.monotonic() + GRACE
                continue
            self.interrupts += 1
            if self.interrupts == 1:
                _print(notice)
            else:
                last, deadline = signal.SIGINT, time.monotonic() + AGAIN
        os.close(source)

    def _receive(self, number, _):
        # Python calls a handler once for two signals during the same execution.
        if number == signal.SIGINT and (self.received == signal.SIGINT or self.interrupts > 1):
            raise KeyboardInterrupt
        self.received = signal.Signals(number)


def _print(notice: str):
    with suppress(OSError):  # a closed standard error, such as that of a pipe which Ctrl-C has ended, too
        os.write(2, notice.encode())  # print() may be waiting for the main thread
