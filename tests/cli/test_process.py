"""Closed pipes, signals in the middle of commands that write files, and log lines of native libraries."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_vit_cli.commands.train import Train
from keras_vit_cli.main import main
from keras_vit_cli.process import UntilClosed, clean_up_on_sigterm, without_native_logs

LOGS = b"""WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
W0000 00:00:1795461019.812068     549 tf_tfl_flatbuffer_helpers.cc:364] Ignored output_format.
2026-11-23 19:10:05.782056: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.

"""
IMPORTS = "import os\nfrom keras_vit_cli.process import without_native_logs"
ERROR = b"E0000 00:00:1795461019.812068     549 delegate.cc:36] The delegate failed.\n"
STATUSES = {signal.SIGTERM: 143, signal.SIGHUP: 143, signal.SIGINT: 130}


@pytest.fixture(params=STATUSES, ids=lambda number: number.name)
def interrupted(request, tmp_path, trained_toy, capsys):
    """Runs a command that gets a signal: checks its status, and that only the model is in the folder."""
    trained_toy(image_size=8, patch_size=4, depth=1, num_classes=10).save(tmp_path / "x.keras")
    # Tests that run in the background of a shell inherit an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    handlers = {number: signal.getsignal(number) for number in STATUSES}

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stopped:
            status = stopped.code
        assert status == STATUSES[request.param]
        assert ("Terminated." if status == 143 else "Interrupted.") in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["x.keras"]
        assert {number: signal.getsignal(number) for number in STATUSES} == handlers

    yield run, lambda *_, **__: os.kill(os.getpid(), request.param)
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_export_leaves_nothing_behind(interrupted, tmp_path, monkeypatch):
    run, send = interrupted

    def write_half(model, folder, names, **options):
        Path(folder).mkdir(parents=True)
        (Path(folder) / "saved_model.pb").write_bytes(b"half")
        send()

    monkeypatch.setattr("keras_vit.export.write_saved_model", write_half)
    run("export", tmp_path / "x.keras", "--output", tmp_path / "out", "--formats", "saved-model")


def test_lost_exception_is_raised_again_but_not_during_the_clean_up(monkeypatch):
    monkeypatch.setattr("keras_vit_cli.process.REPEAT_SECONDS", 0.05)
    cleaned_up = []

    def work():
        with contextlib.suppress(SystemExit):  # as Python does in callbacks of the garbage collection
            os.kill(os.getpid(), signal.SIGTERM)
        try:
            time.sleep(10)
        finally:
            time.sleep(0.3)
            cleaned_up.append(True)

    with pytest.raises(SystemExit) as stopped, clean_up_on_sigterm():
        work()
    assert stopped.value.code == 143 and cleaned_up and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


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


def test_a_full_disk_ends_no_command(capfd):
    with open("/dev/full", "w") as full:
        stream = UntilClosed(full)
        for _ in range(3):
            print("x" * 100_000, file=stream, flush=True)
    assert capfd.readouterr().err.count("No space left") == 1


def test_names_that_the_stream_cannot_encode_are_escaped():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print("é", os.fsdecode(b"\xff.jpg"), file=UntilClosed(stream), flush=True)
    assert stream.buffer.getvalue() == b"\\xe9 \\udcff.jpg\n"


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


def test_log_lines_are_left_out_and_errors_stay(capfd):
    with pytest.raises(ValueError), without_native_logs():
        os.write(2, LOGS + ERROR)
        raise ValueError
    os.write(2, b"INFO: after\n")
    assert capfd.readouterr().err == ERROR.decode() + "INFO: after\n"


def test_the_reason_of_an_abort_is_printed():
    code = "with without_native_logs(): os.write(2, b'INFO: x\\nLLVM ERROR: out of memory\\n'); os.abort()"
    done = subprocess.run([sys.executable, "-c", f"{IMPORTS}\n{code}"], stderr=subprocess.PIPE)
    assert done.returncode < 0 and done.stderr == b"LLVM ERROR: out of memory\n"


def test_a_reader_that_has_gone_does_no_harm(tmp_path):
    """As with `2>&1 | head`."""
    lines = "with without_native_logs():\n    for _ in range(3): os.write(2, b'x\\n' * 9999)\nopen('done', 'w')"
    (tmp_path / "program.py").write_text(f"{IMPORTS}\n{lines}")
    subprocess.run(f"{sys.executable} program.py 2>&1 | true", shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "done").exists()
