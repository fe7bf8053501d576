"""Checkpoints after crashes, signals, full disks and damaged files, on a model of eight weights."""

import os
import resource
import shutil
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.checkpoints.checkpoints import TERMINATED, Checkpoints
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints, prepare_run_folder
from keras_vit.recipes.recipe import Architecture, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.training.ema import EvaluateWithEMA
from keras_vit.recipes.training.nonfinite import NonfiniteSteps
from keras_vit.recipes.training.optimizers import Adam


def build(units=2, steps_per_execution=1):
    """A compiled model with dropout and an EMA of its weights."""
    dense = keras.layers.Dense(units, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5, seed=1), dense])
    optimizer = Adam(0.1, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, "mse", jit_compile=False, steps_per_execution=steps_per_execution)
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture
def make():
    return build


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run with checkpoints of steps 4, 8 and 12, and its variables."""
    folder, model = tmp_path_factory.mktemp("finished"), build()
    fit(model, Checkpoints(folder, every_steps=4))
    return folder, everything(model)


def batches(first=0, steps=12):
    random = np.random.default_rng(0)
    data = random.standard_normal((steps, 4, 3)), random.standard_normal((steps, 4, 2))
    return tf.data.Dataset.from_tensor_slices(tuple(part.astype("float32") for part in data)).skip(first)


def fit(model, checkpoints, *callbacks, **options):
    done = checkpoints.restore(model)
    callbacks = [*callbacks, EvaluateWithEMA(), NonfiniteSteps(3, checkpoints), checkpoints]
    return model.fit(batches(done), shuffle=False, verbose=0, callbacks=callbacks, **options)


def at(step, action, event="on_train_batch_begin"):
    """A callback that calls `action` once, in the first such event after at least `step` steps."""

    def act(*_, **__):
        if not acted and int(callback.model.optimizer.iterations) >= step:
            acted.append(True)
            action()

    acted = []
    callback = keras.callbacks.LambdaCallback()
    setattr(callback, event, act)
    return callback


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def everything(model):
    return [np.asarray(variable) for variable in (*model.variables, *model.optimizer.variables)]


def assert_equal(one, other):
    assert_variables(one, everything(other))


def assert_variables(model, expected):
    for value, reference in zip(everything(model), expected, strict=True):
        np.testing.assert_array_equal(value, reference)


@contextmanager
def no_space(limit=100):
    """Limits the size of files that this process writes: a real system error in the middle of a write."""
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, previous[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_resume_gives_identical_weights(make, tmp_path, steps_per_execution):
    whole = make()
    whole.fit(batches(), shuffle=False, verbose=0)

    def power_cut():
        raise ConnectionAbortedError

    checkpoints = Checkpoints(tmp_path, every_steps=3, keep=2)
    with pytest.raises(ConnectionAbortedError):
        fit(make(steps_per_execution=steps_per_execution), checkpoints, at(9, power_cut))
    checkpoints.release()
    resumed = make(steps_per_execution=steps_per_execution)
    fit(resumed, Checkpoints(tmp_path, every_steps=3, keep=2))
    assert_equal(resumed, whole)
    assert [path.rpartition("/")[2] for path in find_checkpoints(tmp_path)] == ["step-12", "step-9"]


@pytest.mark.slow
def test_sigterm_saves_at_the_end_of_the_execution(make, tmp_path, capsys):
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        fit(make(steps_per_execution=4), Checkpoints(tmp_path), at(4, terminate))
    assert stopped.value.code == TERMINATED and signal.getsignal(signal.SIGTERM) is handler
    assert "Saved step 8 in" in capsys.readouterr().out
    assert [path.rpartition("/")[2] for path in find_checkpoints(tmp_path)] == ["step-8"]


def test_sigterm_in_an_evaluation_saves_the_training_weights_and_discards_its_metrics(make, tmp_path):
    seen = []
    log = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    callbacks = at(0, terminate, "on_test_batch_begin"), log
    with pytest.raises(SystemExit) as stopped:
        fit(make(), Checkpoints(tmp_path), *callbacks, validation_data=batches())
    assert stopped.value.code == TERMINATED and not seen
    whole, resumed = make(), make()
    whole.fit(batches(), shuffle=False, verbose=0)
    assert Checkpoints(tmp_path).restore(resumed) == 12
    assert_equal(resumed, whole)


def test_repeated_sigterm_still_saves(make, tmp_path):
    def often():
        for _ in range(3):
            terminate()

    with pytest.raises(SystemExit) as stopped:
        fit(make(), Checkpoints(tmp_path), at(2, often))
    assert stopped.value.code == TERMINATED and Checkpoints(tmp_path).restore(make()) == 3


def test_ctrl_c_saves_the_last_finished_step(make, tmp_path, capfd):
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit(make(), Checkpoints(tmp_path), at(5, interrupt))
    assert signal.getsignal(signal.SIGINT) is handler
    output, errors = capfd.readouterr()
    assert "Interrupted. Saved step 6 in" in output and "Press Ctrl-C again to end without it" in errors
    whole, resumed = make(), make()
    whole.fit(batches(), shuffle=False, verbose=0)
    fit(resumed, Checkpoints(tmp_path))
    assert_equal(resumed, whole)


def test_second_ctrl_c_ends_at_once(make, tmp_path):
    def twice():
        interrupt()
        interrupt()

    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(make(), checkpoints, at(5, twice))
    checkpoints.release()
    assert not find_checkpoints(tmp_path)


def test_training_in_a_thread_sets_no_signal_handler(make, tmp_path):
    thread = threading.Thread(target=fit, args=(make(), Checkpoints(tmp_path)))
    thread.start()
    thread.join()
    assert len(find_checkpoints(tmp_path)) == 1


@pytest.mark.slow
def test_full_disk_is_reported_and_the_last_checkpoint_remains(make, tmp_path):
    space = no_space()
    checkpoints = Checkpoints(tmp_path, every_steps=4)
    try:
        with pytest.raises(OSError) as raised:
            fit(make(), checkpoints, at(5, space.__enter__))
    finally:
        space.__exit__(None, None, None)
    checkpoints.release()
    message = str(raised.value)
    assert f"checkpoint of step 8 cannot be written to {tmp_path}" in message and "File too large" in message
    assert "Check the free space" in message and f"Last checkpoint: {tmp_path}/step-4." in message
    assert not list(tmp_path.glob("*temp*"))
    whole, resumed = make(), make()
    whole.fit(batches(), shuffle=False, verbose=0)
    fit(resumed, Checkpoints(tmp_path))
    assert_equal(resumed, whole)


def test_folder_that_is_gone_is_reported(make, tmp_path):
    """A removed folder is created again; one that cannot be, as on a disk that became read-only, is an error."""
    folder = tmp_path / "run"
    fit(make(), Checkpoints(folder, every_steps=4), at(5, lambda: shutil.rmtree(folder)))
    assert Checkpoints(folder).restore(make()) == 12

    def block():
        shutil.rmtree(folder)
        folder.write_text("")

    shutil.rmtree(folder)
    checkpoints = Checkpoints(folder, every_steps=4)
    with pytest.raises(OSError, match=f"checkpoint of step 8 cannot be written to {folder}: .*Check the free space"):
        fit(make(), checkpoints, at(5, block))
    checkpoints.release()


def test_clock_jumps_do_not_matter(make, finished, tmp_path, monkeypatch):
    clock = time.time
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    for number, file in enumerate(sorted(tmp_path.iterdir())):
        os.utime(file, (1e9 - number, 1e9 - number))  # the newest checkpoint is not the youngest file
    cut(tmp_path / "step-12.index")
    jump = at(10, lambda: monkeypatch.setattr(time, "time", lambda: clock() - 1e8))
    resumed, checkpoints = make(), Checkpoints(tmp_path, every_steps=1, keep=2)
    fit(resumed, checkpoints, jump)
    assert_variables(resumed, finished[1])
    assert [path.rpartition("-")[2] for path in find_checkpoints(tmp_path)] == ["12", "11"]


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty, os.remove])
@pytest.mark.parametrize("file", ["step-12.data-00000-of-00001", "step-12.index"])
def test_damaged_checkpoint_is_reported_and_the_previous_one_used(make, finished, tmp_path, capsys, damage, file):
    folder, expected = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    damage(tmp_path / file)
    resumed, checkpoints = make(), Checkpoints(tmp_path, every_steps=4)
    assert checkpoints.restore(resumed) == 8 and checkpoints.latest == f"{tmp_path}/step-8"
    assert "step-12 is damaged, using the checkpoint before it" in capsys.readouterr().out or damage is os.remove
    fit(resumed, checkpoints)
    assert_variables(resumed, expected)
    assert Checkpoints(tmp_path).restore(make()) == 12


def test_only_damaged_checkpoints_raise(make, finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*.data-00000-of-00001"):
        cut(file)
    with pytest.raises(OSError, match="None of the 3 checkpoints in .* can be read"):
        Checkpoints(tmp_path).restore(make())


@pytest.mark.parametrize("content", [b"", b"half wri", bytes(40), b'model_checkpoint_path: "step-8"'])
def test_checkpoint_list_of_tensorflow_is_ignored(make, finished, tmp_path, content):
    """A power failure leaves files of zero bytes or of zeros; an old list names another checkpoint."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "checkpoint").write_bytes(content)
    assert Checkpoints(tmp_path).restore(make()) == 12


def test_only_the_newest_checkpoints_are_kept(make, finished, tmp_path):
    """Also after a resume, and never a damaged one of a later step instead of the last good one."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    cut(tmp_path / "step-12.data-00000-of-00001")
    checkpoints, kept = Checkpoints(tmp_path, every_steps=1, keep=1), []
    look = keras.callbacks.LambdaCallback()
    look.on_train_batch_begin = lambda *_, **__: kept.append(find_checkpoints(tmp_path))
    fit(make(), checkpoints, look)
    assert [[path.rpartition("-")[2] for path in paths] for paths in kept] == [
        ["12", "8", "4"],
        ["12", "9"],
        ["12", "10"],
        ["12", "11"],
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step-12.data-00000-of-00001", "step-12.index"]


def test_incomplete_checkpoint_of_a_killed_run_is_removed(make, tmp_path):
    (tmp_path / "step-8_temp").mkdir()
    (tmp_path / "step-8_temp" / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"half")
    assert Checkpoints(tmp_path).restore(make()) == 0
    assert not list(tmp_path.glob("*temp*"))


def test_nonfinite_weights_are_not_saved(make, tmp_path):
    model = make()
    spoil = at(6, lambda: model.layers[-1].kernel.assign(np.full((3, 2), np.inf)), "on_train_batch_end")
    checkpoints = Checkpoints(tmp_path, every_steps=3)
    with pytest.raises(FloatingPointError, match=r"At step 6, .*Last checkpoint: .*/step-3\."):
        fit(model, checkpoints, spoil)
    checkpoints.release()


def test_checkpoint_of_another_model_raises(make, finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    with pytest.raises(ValueError, match="step-12 do not match this model.*another version"):
        Checkpoints(tmp_path).restore(make(units=3))
    other = make()
    other.compile("sgd", "mse")
    with pytest.raises(ValueError, match="step-12 do not match this model.*another version"):
        Checkpoints(tmp_path).restore(other)


@pytest.mark.parametrize("folder", ["nowhere://bucket/run", "{}/file/run"])
def test_unusable_folder_raises(make, tmp_path, folder):
    (tmp_path / "file").write_text("")
    folder = folder.format(tmp_path)
    with pytest.raises(OSError, match=f"run's folder {folder} cannot be used: .*Check the permissions"):
        prepare_run_folder(MaskedPatch(run=Run(folder=folder)))
    with pytest.raises(OSError, match="cannot be"):
        fit(make(), Checkpoints(folder))


def test_folder_of_another_recipe_raises(finished, tmp_path):
    recipe = Supervised(run=Run(folder=str(tmp_path)))
    prepare_run_folder(recipe)
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    with pytest.raises(ValueError, match="already contains a run. Resume it with run.resume=True"):
        prepare_run_folder(recipe)
    # Devices, folders and intervals may change; what is computed may not.
    elsewhere = Run(folder=str(tmp_path), resume=True, strategy="mirrored", checkpoint_steps=7, tensorboard=True)
    prepare_run_folder(replace(recipe, run=elsewhere))
    moved = replace(recipe, run=elsewhere, data=replace(recipe.data, data_dir="/elsewhere"))
    prepare_run_folder(moved)
    other = replace(recipe, run=replace(elsewhere, seed=1), optimizer=Optimizer(learning_rate=1.0))
    with pytest.raises(
        ValueError, match=r"learning_rate \(0.03 there, 1.0 here\), optimizer.name .*run.seed \(0 there"
    ):
        prepare_run_folder(other)
    another_model = replace(recipe, run=elsewhere, architecture=Architecture("L/16"))
    with pytest.raises(ValueError, match=r"architecture.variant \('B/16' there, 'L/16' here\). Resume with the same"):
        prepare_run_folder(another_model)
    with pytest.raises(ValueError, match="its kind is Supervised, this recipe's is MaskedPatch"):
        prepare_run_folder(MaskedPatch(run=elsewhere))
