"""Checkpoints: a resumed run computes the same, also after a full disk; only finite weights are saved."""

import shutil

import numpy as np
import pytest
from checkpointed_training import assert_equal, at, batches, build, fit
from full_disk import full_disk

from keras_vit.recipes.checkpoints.checkpoints import Checkpoints
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_resume_gives_identical_weights(tmp_path, steps_per_execution):
    whole = build()
    whole.fit(batches(), shuffle=False, verbose=0)

    def power_cut():
        raise ConnectionAbortedError

    checkpoints = Checkpoints(tmp_path, every_steps=3, keep=2)
    with pytest.raises(ConnectionAbortedError):
        fit(build(steps_per_execution=steps_per_execution), checkpoints, at(9, power_cut))
    checkpoints.release()
    resumed = build(steps_per_execution=steps_per_execution)
    fit(resumed, Checkpoints(tmp_path, every_steps=3, keep=2))
    assert_equal(resumed, whole)
    assert [path.rpartition("/")[2] for path in find_checkpoints(tmp_path)] == ["step-12", "step-9"]


@pytest.mark.slow
def test_full_disk_is_reported_and_the_last_checkpoint_remains(tmp_path):
    space = full_disk(100)
    checkpoints = Checkpoints(tmp_path, every_steps=4)
    try:
        with pytest.raises(OSError) as raised:
            fit(build(), checkpoints, at(5, space.__enter__))
    finally:
        space.__exit__(None, None, None)
    checkpoints.release()
    message = str(raised.value)
    assert f"checkpoint of step 8 cannot be written to {tmp_path}" in message and "File too large" in message
    assert "Check the free space" in message and f"Last checkpoint: {tmp_path}/step-4." in message
    assert not list(tmp_path.glob("*temp*"))
    whole, resumed = build(), build()
    whole.fit(batches(), shuffle=False, verbose=0)
    fit(resumed, Checkpoints(tmp_path))
    assert_equal(resumed, whole)


def test_folder_that_is_gone_is_reported(tmp_path):
    """A removed folder is created again; one that cannot be, as on a disk that became read-only, is an error."""
    folder = tmp_path / "run"
    fit(build(), Checkpoints(folder, every_steps=4), at(5, lambda: shutil.rmtree(folder)))
    assert Checkpoints(folder).restore(build()) == 12

    def block():
        shutil.rmtree(folder)
        folder.write_text("")

    shutil.rmtree(folder)
    checkpoints = Checkpoints(folder, every_steps=4)
    with pytest.raises(OSError, match=f"checkpoint of step 8 cannot be written to {folder}: .*Check the free space"):
        fit(build(), checkpoints, at(5, block))
    checkpoints.release()


def test_nonfinite_weights_are_not_saved(tmp_path):
    model = build()
    spoil = at(6, lambda: model.layers[-1].kernel.assign(np.full((3, 2), np.inf)), "on_train_batch_end")
    checkpoints = Checkpoints(tmp_path, every_steps=3)
    with pytest.raises(FloatingPointError, match=r"At step 6, .*Last checkpoint: .*/step-3\."):
        fit(model, checkpoints, spoil)
    checkpoints.release()


def test_checkpoint_of_another_model_raises(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    with pytest.raises(ValueError, match="step-12 do not match this model.*another version"):
        Checkpoints(tmp_path).restore(build(units=3))
    other = build()
    other.compile("sgd", "mse")
    with pytest.raises(ValueError, match="step-12 do not match this model.*another version"):
        Checkpoints(tmp_path).restore(other)
