"""SIGTERM and Ctrl-C in a training: the last finished step is saved, or nothing changes."""

import hashlib
import os
import signal
import threading
import time

import keras
import pytest
from checkpointed_training import assert_variables, at, batches, build, fit, steps

from keras_vit.recipes.processes.watch import TERMINATED
from keras_vit.recipes.runs import stop_signals
from keras_vit.recipes.runs.checkpoints import Checkpoints
from keras_vit.recipes.runs.stop_signals import StopSignals


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGTERM] * 3, [signal.SIGHUP]], ids=str)
def test_sigterm_saves_at_the_end_of_the_execution(tmp_path, capsys, numbers):
    """Also if it is repeated, and if the terminal has gone."""
    handlers = [signal.getsignal(number) for number in numbers]
    with pytest.raises(SystemExit) as stopped:
        fit(
            build(steps_per_execution=4),
            Checkpoints(tmp_path),
            at(4, lambda: [os.kill(os.getpid(), number) for number in numbers]),
        )
    assert stopped.value.code == TERMINATED and [signal.getsignal(number) for number in numbers] == handlers
    assert "Saved step 8 in" in capsys.readouterr().out
    assert steps(tmp_path) == [8]


def test_sigterm_in_an_evaluation_saves_the_training_weights_and_discards_its_metrics(tmp_path, finished):
    seen = []
    log = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    callbacks = at(0, terminate, "on_test_batch_begin"), log
    with pytest.raises(SystemExit) as stopped:
        fit(build(), Checkpoints(tmp_path), *callbacks, validation_data=batches())
    assert stopped.value.code == TERMINATED and not seen
    resumed = build()
    assert Checkpoints(tmp_path).restore(resumed) == 12
    assert_variables(resumed, finished[1])


def test_ctrl_c_saves_the_last_finished_step(tmp_path, finished, capfd):
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="Saved step 6 in"):
        fit(build(), Checkpoints(tmp_path), at(5, interrupt))
    assert signal.getsignal(signal.SIGINT) is handler
    output, errors = capfd.readouterr()
    notice = "\nStopping after the current step, with a checkpoint. Press Ctrl-C again to end without it.\n"
    assert not output and errors == notice
    resumed = build()
    fit(resumed, Checkpoints(tmp_path))
    assert_variables(resumed, finished[1])


def test_second_ctrl_c_ends_at_once(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(build(), checkpoints, at(5, lambda: (interrupt(), interrupt())))
    checkpoints.release()
    assert not steps(tmp_path)


def test_ctrl_c_is_answered_while_tensorflow_computes(monkeypatch):
    """Python calls the handler only after that, and once for both signals."""
    printed = []
    monkeypatch.setattr(stop_signals, "_print", lambda notice: printed.append((notice, time.monotonic())))
    signals = StopSignals()
    signals.install(steps_per_execution=10)
    try:
        with pytest.raises(KeyboardInterrupt):
            for seconds in (0.1, 0.2):
                threading.Timer(seconds, interrupt).start()
            hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)  # as TensorFlow, not in Python
        end = time.monotonic()
    finally:
        signals.release()
    ((notice, at_time),) = printed
    assert "10 steps" in notice and end - at_time > 0.2


def test_training_in_a_thread_sets_no_signal_handler(tmp_path):
    thread = threading.Thread(target=fit, args=(build(), Checkpoints(tmp_path)))
    thread.start()
    thread.join()
    assert steps(tmp_path) == [12]
