"""Damaged and foreign files among checkpoints: the newest whole one is restored, and the rest is reported."""

import os
import shutil
import time

import keras
import pytest
from checkpointed_training import assert_variables, at, build, fit

from keras_vit.recipes.checkpoints.checkpoints import Checkpoints
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints


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
def test_damaged_checkpoint_is_reported_and_the_previous_one_used(finished, tmp_path, capsys, damage, file):
    folder, expected = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    damage(tmp_path / file)
    resumed, checkpoints = build(), Checkpoints(tmp_path, every_steps=4)
    assert checkpoints.restore(resumed) == 8 and checkpoints.latest == f"{tmp_path}/step-8"
    assert "step-12 is damaged, using the checkpoint before it" in capsys.readouterr().out or damage is os.remove
    fit(resumed, checkpoints)
    assert_variables(resumed, expected)
    assert Checkpoints(tmp_path).restore(build()) == 12


def test_only_damaged_checkpoints_raise(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*.data-00000-of-00001"):
        cut(file)
    with pytest.raises(OSError, match="None of the 3 checkpoints in .* can be read"):
        Checkpoints(tmp_path).restore(build())


@pytest.mark.parametrize("content", [b"", b"half wri", bytes(40), b'model_checkpoint_path: "step-8"'])
def test_checkpoint_list_of_tensorflow_is_ignored(finished, tmp_path, content):
    """A power failure leaves files of zero bytes or of zeros; an old list names another checkpoint."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "checkpoint").write_bytes(content)
    assert Checkpoints(tmp_path).restore(build()) == 12


def test_only_the_newest_checkpoints_are_kept(finished, tmp_path):
    """Also after a resume, and never a damaged one of a later step instead of the last good one."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    cut(tmp_path / "step-12.data-00000-of-00001")
    checkpoints, kept = Checkpoints(tmp_path, every_steps=1, keep=1), []
    look = keras.callbacks.LambdaCallback()
    look.on_train_batch_begin = lambda *_, **__: kept.append(find_checkpoints(tmp_path))
    fit(build(), checkpoints, look)
    assert [[path.rpartition("-")[2] for path in paths] for paths in kept] == [
        ["12", "8", "4"],
        ["12", "9"],
        ["12", "10"],
        ["12", "11"],
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step-12.data-00000-of-00001", "step-12.index"]


def test_clock_jumps_do_not_matter(finished, tmp_path, monkeypatch):
    clock = time.time
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    for number, file in enumerate(sorted(tmp_path.iterdir())):
        os.utime(file, (1e9 - number, 1e9 - number))  # the newest checkpoint is not the youngest file
    cut(tmp_path / "step-12.index")
    jump = at(10, lambda: monkeypatch.setattr(time, "time", lambda: clock() - 1e8))
    resumed, checkpoints = build(), Checkpoints(tmp_path, every_steps=1, keep=2)
    fit(resumed, checkpoints, jump)
    assert_variables(resumed, finished[1])
    assert [path.rpartition("-")[2] for path in find_checkpoints(tmp_path)] == ["12", "11"]
