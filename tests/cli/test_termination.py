"""Signals in the middle of commands that write files."""

import os
import signal
import threading

import pytest

from keras_vit.export import write_saved_model
from keras_vit_cli.main import main
from keras_vit_cli.termination import clean_up_on_sigterm

STATUSES = {signal.SIGTERM: 143, signal.SIGINT: 130}


@pytest.fixture(params=STATUSES, ids=lambda number: number.name)
def interrupted(request, tmp_path, trained_toy, capsys):
    """Runs a command that gets a signal: checks its status, and that only the model is in the folder."""
    trained_toy(image_size=8, patch_size=2, num_classes=10).save(tmp_path / "x.keras")
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

    return run, lambda *_, **__: os.kill(os.getpid(), request.param)


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


def test_thread_sets_no_handler():
    def run():
        with clean_up_on_sigterm():
            found.append(signal.getsignal(signal.SIGTERM))

    before, found = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [before]
