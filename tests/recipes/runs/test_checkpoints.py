"""Checkpoints: a resumed run computes the same, also after a full disk and with damaged files."""

import os
import shutil

import keras
import numpy as np
import pytest
from checkpointed_training import assert_variables, at, batches, build, fit, steps
from full_disk import full_disk

from keras_vit.recipes.runs.checkpoints import Checkpoints


def cut(content):
    return content[:-40]


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


def damage(path, change):
    path.write_bytes(change(path.read_bytes()))


def test_checkpoints_do_not_change_the_training(finished):
    whole = build()
    whole.fit(batches(), shuffle=False, verbose=0)
    assert_variables(whole, finished[1])


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_resume_gives_identical_weights(finished, tmp_path, steps_per_execution):
    def power_cut():
        raise ConnectionAbortedError

    folder = tmp_path / "run [12]*"  # a pattern, which TensorFlow would look for
    checkpoints = Checkpoints(folder, every_steps=3, keep=2)
    with pytest.raises(ConnectionAbortedError):
        fit(build(steps_per_execution=steps_per_execution), checkpoints, at(9, power_cut))
    checkpoints.release()
    resumed = build(steps_per_execution=steps_per_execution)
    fit(resumed, Checkpoints(folder, every_steps=3, keep=2))
    assert_variables(resumed, finished[1])
    assert steps(folder) == [12, 9]


def test_full_disk_is_reported_and_the_last_checkpoint_remains(finished, tmp_path):
    space, checkpoints = full_disk(100), Checkpoints(tmp_path, every_steps=4)
    try:
        with pytest.raises(OSError, match=f"step 8 .*{tmp_path}.*File too large.*Last checkpoint: {tmp_path}/step-4"):
            fit(build(), checkpoints, at(5, space.__enter__))
    finally:
        space.__exit__(None, None, None)
    checkpoints.release()
    assert not list(tmp_path.glob("*temp*"))
    resumed = build()
    fit(resumed, Checkpoints(tmp_path))
    assert_variables(resumed, finished[1])


def test_removed_folder_is_created_again_and_one_that_cannot_be_is_an_error(tmp_path):
    folder = tmp_path / "run"
    fit(build(), Checkpoints(folder, every_steps=4), at(5, lambda: shutil.rmtree(folder)))
    assert Checkpoints(folder).restore(build()) == 12

    def block():
        shutil.rmtree(folder)
        folder.write_text("")

    shutil.rmtree(folder)
    checkpoints = Checkpoints(folder, every_steps=4)
    with pytest.raises(OSError, match=f"step 8 .*{folder}"):
        fit(build(), checkpoints, at(5, block))
    checkpoints.release()


def test_nonfinite_weights_are_not_saved(tmp_path):
    model = build()
    spoil = at(6, lambda: model.layers[-1].kernel.assign(np.full((3, 2), np.inf)), "on_train_batch_end")
    checkpoints = Checkpoints(tmp_path, every_steps=3)
    with pytest.raises(FloatingPointError, match=r"step 6, .*/step-3\."):
        fit(model, checkpoints, spoil)
    checkpoints.release()
    assert steps(tmp_path) == [3]


def test_checkpoint_of_another_model_raises(run):
    other = build()
    other.compile("sgd", "mse")
    for model in (build(units=3), other):
        with pytest.raises(ValueError, match="step-12 do not match"):
            Checkpoints(run).restore(model)


@pytest.mark.parametrize("change", [cut, flip, lambda content: b"", None], ids=["cut", "flip", "empty", "removed"])
@pytest.mark.parametrize("file", ["step-12.data-00000-of-00001", "step-12.index"])
def test_damaged_checkpoint_is_reported_and_the_previous_one_used(run, capsys, change, file):
    damage(run / file, change) if change else os.remove(run / file)
    model, checkpoints = build(), Checkpoints(run)
    assert checkpoints.restore(model) == 8 and checkpoints.latest == f"{run}/step-8"
    assert model.optimizer.iterations == 8
    assert "step-12 is damaged" in capsys.readouterr().out or not change


def test_only_damaged_checkpoints_raise(run):
    for file in run.glob("*.data-00000-of-00001"):
        damage(file, cut)
    with pytest.raises(OSError, match="None of the 3 checkpoints"):
        Checkpoints(run).restore(build())


def test_incomplete_checkpoint_of_a_killed_run_is_removed(tmp_path):
    (tmp_path / "step-8_temp").mkdir()
    (tmp_path / "step-8_temp" / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"half")
    assert Checkpoints(tmp_path).restore(build()) == 0
    assert not list(tmp_path.glob("*temp*"))


def test_only_the_newest_checkpoints_are_kept(run, finished):
    """Also after a resume, and never a damaged one of a later step instead of the last good one."""
    damage(run / "step-12.data-00000-of-00001", cut)
    checkpoints, kept = Checkpoints(run, every_steps=1, keep=1), []
    look = keras.callbacks.LambdaCallback()
    look.on_train_batch_begin = lambda *_, **__: kept.append(steps(run))
    resumed = build()
    fit(resumed, checkpoints, look)
    assert kept == [[12, 8, 4], [12, 9], [12, 10], [12, 11]]
    assert sorted(file.name for file in run.iterdir()) == ["step-12.data-00000-of-00001", "step-12.index"]
    assert_variables(resumed, finished[1])
