"""A closed pipe ends neither a command nor its output to files."""

import os
import sys

import pytest

from keras_vit_cli.main import main
from keras_vit_cli.process.streams import UntilClosed
from keras_vit_cli.train import Train


@pytest.fixture
def closed_pipe():
    """A text stream into a pipe that nobody reads anymore."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        yield stream


def test_output_after_the_pipe_was_closed_is_discarded(closed_pipe):
    closed_pipe.write("x")
    with pytest.raises(BrokenPipeError):
        closed_pipe.flush()
    stream = UntilClosed(closed_pipe)
    stream.flush()  # so that closing it does not raise, either
    for _ in range(3):
        print("x" * 100_000, file=stream, flush=True)
    assert os.write(stream.fileno(), b"x") == 1  # also that of TensorFlow's C++ code


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_commands_end_normally(name, closed_pipe, monkeypatch):
    finished = []

    def run(self):
        for _ in range(3):
            print("x" * 100_000, file=getattr(sys, name), flush=True)
        finished.append(True)

    monkeypatch.setattr(Train, "run", run)
    monkeypatch.setattr(sys, name, closed_pipe)
    assert main(["train", "cifar10-scratch"]) == 0 and finished
    assert getattr(sys, name) is closed_pipe


def test_open_streams_are_unchanged(tmp_path):
    with open(tmp_path / "x", "w") as file:
        stream = UntilClosed(file)
        assert stream.write("abc") == 3 and stream.name == file.name and not stream.isatty()
        stream.flush()
        assert (tmp_path / "x").read_text() == "abc"
