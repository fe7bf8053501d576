"""Folders of runs: unusable ones, those of another recipe, and what a killed run leaves."""

import shutil
from dataclasses import replace

import pytest
from checkpointed_training import build, fit

from keras_vit.recipes.checkpoints.checkpoints import Checkpoints
from keras_vit.recipes.checkpoints.run_folder import prepare_run_folder
from keras_vit.recipes.recipe import Architecture, MaskedPatch, Optimizer, Run, Supervised
from keras_vit_cli.flags import fields_to_flags


def test_incomplete_checkpoint_of_a_killed_run_is_removed(tmp_path):
    (tmp_path / "step-8_temp").mkdir()
    (tmp_path / "step-8_temp" / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"half")
    assert Checkpoints(tmp_path).restore(build()) == 0
    assert not list(tmp_path.glob("*temp*"))


@pytest.mark.parametrize("folder", ["nowhere://bucket/run", "{}/file/run"])
def test_unusable_folder_raises(tmp_path, folder):
    (tmp_path / "file").write_text("")
    folder = folder.format(tmp_path)
    with pytest.raises(OSError, match=f"run's folder {folder} cannot be used: .*Check the permissions"):
        prepare_run_folder(MaskedPatch(run=Run(folder=folder)))
    with pytest.raises(OSError, match="cannot be"):
        fit(build(), Checkpoints(folder))


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
    differs = r"architecture.variant \('B/16' there, 'L/16' here\). Resume with that recipe \(keras-vit train "
    with pytest.raises(ValueError, match=f"{differs}{tmp_path} .*, or choose another folder.$"):
        prepare_run_folder(another_model)
    (tmp_path / "model.keras").touch()
    with pytest.raises(ValueError, match=differs) as error:
        prepare_run_folder(another_model)
    start = fields_to_flags(str(error.value)).partition("choose another folder, with ")[2]
    assert start == f"--weights {tmp_path}/model.keras and --keep-head to start from its trained weights."
    from_weights = replace(another_model, weights="B_16.npz", run=replace(elsewhere, folder=str(tmp_path / "weights")))
    prepare_run_folder(from_weights)
    shutil.copytree(finished[0], tmp_path / "weights", dirs_exist_ok=True)
    prepare_run_folder(replace(from_weights, architecture=Architecture()))  # the weights determine the model
    # A cache keeps the order of the files, which are shuffled otherwise.
    with pytest.raises(ValueError, match=r"differs in data.cache \(False there, True here\)"):
        prepare_run_folder(replace(recipe, run=elsewhere, data=replace(recipe.data, cache=True)))
    with pytest.raises(ValueError, match="its kind is Supervised, this recipe's is MaskedPatch"):
        prepare_run_folder(MaskedPatch(run=elsewhere))
