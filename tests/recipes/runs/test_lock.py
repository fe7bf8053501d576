"""The lock of a run's folder, against processes that live, die and are suspended."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.fit import pretrain
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Data, MaskedPatch, Run
from keras_vit.recipes.run_recipe import run
from keras_vit.recipes.runs.lock import run_lock

WORKERS = Workers(tf.distribute.get_strategy())
# Locks as the code does, with the standard library alone: starting TensorFlow would take seconds.
HOLDER = """import fcntl, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.write("process 4242 on elsewhere")
file.flush()
print("locked", flush=True)
time.sleep(60)"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / ".lock"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("function", [pretrain, run])
def test_folder_of_a_living_process_is_left_alone_and_of_a_killed_one_is_locked(tmp_path, holder, function):
    recipe = MaskedPatch(data=Data("no_such_dataset", batch_size=64), run=Run(folder=str(tmp_path)))
    with pytest.raises(OSError, match="process 4242 on elsewhere"):
        function(recipe)
    assert [file.name for file in tmp_path.iterdir()] == [".lock"]
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with run_lock(str(tmp_path), WORKERS):
        assert "4242" not in (tmp_path / ".lock").read_text()


@pytest.mark.parametrize("chief", [True, False])
def test_all_workers_end_if_the_chief_cannot_lock(tmp_path, holder, monkeypatch, chief):
    workers = Workers(tf.distribute.get_strategy())
    workers.chief = chief
    monkeypatch.setattr(
        workers, "_gather", lambda value: np.array([value, 1])
    )  # the other worker has failed, or this one has
    with pytest.raises(OSError, match="4242" if chief else "chief worker"):
        with run_lock(str(tmp_path), workers):
            pass


def test_a_run_that_cannot_start_leaves_no_folder_of_its_own(tmp_path):
    (tmp_path / "old").mkdir()
    for name in ("new/run", "old"):
        recipe = MaskedPatch(data=Data("no_such_dataset", batch_size=64), run=Run(folder=str(tmp_path / name)))
        with pytest.raises(ValueError, match="no_such_dataset"):
            run(recipe)
    assert [folder.name for folder in tmp_path.iterdir()] == ["old"]
    with pytest.raises(KeyboardInterrupt), run_lock(str(tmp_path / "saved"), WORKERS):
        (tmp_path / "saved" / "step-1.index").write_text("")
        raise KeyboardInterrupt
    assert (tmp_path / "saved" / "step-1.index").exists()


def test_lock_holds_until_the_block_ends(tmp_path):
    with pytest.raises(ZeroDivisionError), run_lock(str(tmp_path), WORKERS):
        with pytest.raises(OSError, match="is in use"):
            with run_lock(f"{tmp_path}/../{tmp_path.name}", WORKERS):  # the same folder by another name
                pass
        raise ZeroDivisionError
    with run_lock(str(tmp_path), WORKERS):
        pass


def test_folders_that_are_not_locked(tmp_path, monkeypatch):
    """No folder, one that cannot be created, and one on a disk without locks."""
    with run_lock(None, WORKERS):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file/run"):
        with run_lock(str(tmp_path / "file" / "run"), WORKERS):
            pass

    def flock(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    with run_lock(str(tmp_path), WORKERS), run_lock(str(tmp_path), WORKERS):
        pass
