"""Progress of long work: on a terminal a line that is overwritten, elsewhere a line now and then."""

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

LINE_SECONDS = 30.0  # between two lines, where lines stay
FIRST_SECONDS = 2.0  # before the first one: what takes less needs none
REFRESH_SECONDS = 0.2  # where they are overwritten
_hidden = False


@contextmanager
def without_progress() -> Iterator[None]:
    """Shows no progress in this block."""
    global _hidden
    before, _hidden = _hidden, True
    try:
        yield
    finally:
        _hidden = before


def shows_bars() -> bool:
    """Whether libraries may show bars: in terminals and notebooks. In a log, these are lines of control codes."""
    return not _hidden and ((sys.stdout.isatty() and sys.stderr.isatty()) or "ipykernel" in sys.modules)


def keras_verbosity() -> int:
    """The argument `verbose` of Keras: 1 for a bar, 2 for plain lines, 0 for nothing."""
    return 0 if _hidden else 1 if shows_bars() else 2


def downloading(what: str):
    """A block in which a library downloads: it shows its own bar, or a line says what is read."""
    if shows_bars():
        return nullcontext()
    if not _hidden:
        print(f"Downloading {what}", file=sys.stderr, flush=True)
    return redirect_stdout(io.StringIO())


def show_progress(text: str):
    """Writes a line to standard error; on a terminal in place of the previous one, "" to remove it."""
    if _hidden:
        return
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


class Elapsed:
    """Shows what work is under way, and the time since it began: on a terminal always, elsewhere only what is new.

    There a line is repeated after some time, so that long work does not look hung.
    """

    def __init__(self):
        self.began, self.text, self.due = time.perf_counter(), "", 0.0

    def show(self, text: str):
        """Shows a step of the work; call it every few seconds."""
        now = time.perf_counter()
        if sys.stderr.isatty() or text != self.text or now >= self.due:
            self.text, self.due = text, now + LINE_SECONDS
            show_progress(f"{text}, {duration(now - self.began)}")


class Progress:
    """Shows how many parts of some work are done, and the time that the others take.

    Args:
        work: What it is, such as "Features of train".
        total: Number of parts.
        unit: What the parts are, such as "images".
    """

    def __init__(self, work: str, total: int, unit: str):
        self.work, self.total, self.unit = work, total, unit
        self.done, self.first = 0, (0, 0.0)
        self.due = time.perf_counter() + FIRST_SECONDS

    def add(self, count: int):
        """Counts parts that are done."""
        now = time.perf_counter()
        if not self.done:
            self.first = (count, now)  # what it took is no measure of the others: functions are compiled
        self.done += count
        counted, since = self.first
        if now >= self.due and counted < self.done < self.total:
            self.due = now + (REFRESH_SECONDS if sys.stderr.isatty() else LINE_SECONDS)
            left = duration((self.total - self.done) * (now - since) / (self.done - counted))
            show_progress(f"{self.work}: {self.done:,} of {self.total:,} {self.unit}, {left} left")

    def end(self):
        """Removes the line of a terminal."""
        show_progress("")


def duration(seconds: float) -> str:
    """Such as "12 s", "5 min" or "2 h 20 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
