"""Signals in the middle of commands that write files."""

import contextlib
import os
import signal
import threading
import time

import pytest

from keras_vit.export import write_saved_model
from keras_vit_cli.main import main
from keras_vit_cli.process.termination import clean_up_on_sigterm

STATUSES = {signal.SIGTERM: 143, signal.SIGINT: 130}


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

    def write_half(model, folder, names):
        write_saved_model(model, folder, names)
        send()

    monkeypatch.setattr("keras_vit.export.write_saved_model", write_half)
    run("export", tmp_path / "x.keras", "--output", tmp_path / "out", "--formats", "saved-model")


@pytest.mark.slow
def test_evaluate_leaves_nothing_behind(interrupted, tmp_path, data_dir, monkeypatch):
    run, send = interrupted
    monkeypatch.setattr("keras_vit.recipes.evaluation.classification.ClassificationMetrics.update", send)
    options = ("--dataset", "digits", "--data-dir", data_dir, "--split", "test[:20]", "--json", tmp_path / "x.json")
    run("evaluate", tmp_path / "x.keras", *options)


def test_lost_exception_is_raised_again_but_not_during_the_clean_up(monkeypatch):
    monkeypatch.setattr("keras_vit_cli.process.termination.REPEAT_SECONDS", 0.05)
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


def test_thread_sets_no_handler():
    def run():
        with clean_up_on_sigterm():
            found.append(signal.getsignal(signal.SIGTERM))

    before, found = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [before]
