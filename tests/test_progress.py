"""Progress on a terminal, in a log, and where it is not wanted."""

import sys

import keras
import pytest

from keras_vit import progress


class Terminal:
    def __init__(self, stream):
        self.stream = stream

    def isatty(self):
        return True

    def __getattr__(self, name):
        return getattr(self.stream, name)


@pytest.fixture
def clock(monkeypatch):
    """A function that sets the time, from 1000 s on."""
    now = [1000.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return lambda seconds: now.__setitem__(0, 1000.0 + seconds)


def work(clock, seconds, total=8):
    counter = progress.Progress("Features of train", total * 10, "images")
    for step in range(total):
        clock((step + 1) * seconds)
        counter.add(10)
    counter.end()


def test_a_log_has_a_line_now_and_then_with_the_time_that_is_left(clock, capsys):
    work(clock, 20.0)
    output, lines = capsys.readouterr()
    # After the first 2 s and then each 30 s, of the pace since the first part: 2 s for an image.
    expected = ((20, "2 min"), (40, "80 s"), (60, "40 s"))
    assert lines == "".join(f"Features of train: {done} of 80 images, {left} left\n" for done, left in expected)
    assert not output
    work(clock, 0.1)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_one_line_that_is_removed_at_the_end(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal(sys.stderr))
    work(clock, 5.0)
    shown = capsys.readouterr().err
    assert shown.count("\r\033[K") == 7 and "\n" not in shown and shown.endswith(" left\r\033[K")


def test_elapsed_time_grows_over_all_steps_of_the_work(clock, capsys, monkeypatch):
    shown = progress.Elapsed()
    for seconds in range(0, 70, 2):  # two compilers that are waited for one after the other
        clock(seconds)
        shown.show("tracing" if seconds < 6 else "compiling")
    assert capsys.readouterr().err == "tracing, 1 s\ncompiling, 6 s\ncompiling, 36 s\ncompiling, 66 s\n"
    monkeypatch.setattr(sys, "stderr", Terminal(sys.stderr))
    clock(71)
    shown.show("compiling")
    assert capsys.readouterr().err == "\r\033[Kcompiling, 71 s"


def test_nothing_where_it_is_not_wanted(clock, capsys):
    with progress.without_progress():
        work(clock, 50.0)
        progress.show_progress("x")
        with progress.downloading("x"):
            keras.utils.Progbar(3).update(1)
        assert progress.keras_verbosity() == 0
    assert capsys.readouterr() == ("", "") and progress.keras_verbosity() == 2


def test_downloads_are_a_line_or_a_bar(capsys, monkeypatch):
    with progress.downloading("weights.npz"):
        keras.utils.Progbar(3).update(1)
    assert capsys.readouterr() == ("", "Downloading weights.npz\n")
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal(getattr(sys, name)))
    assert progress.keras_verbosity() == 1
    with progress.downloading("weights.npz"):
        keras.utils.Progbar(3).update(1)
    output, errors = capsys.readouterr()
    assert "1/3" in output and not errors


@pytest.mark.parametrize("seconds,text", [(0.2, "1 s"), (89.4, "89 s"), (90.0, "2 min"), (8400.0, "2 h 20 min")])
def test_durations(seconds, text):
    assert progress.duration(seconds) == text
