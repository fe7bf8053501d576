"""An interrupted and resumed run ends with the same weights, bit for bit, as an uninterrupted one."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from checkpointed_training import assert_variables, at, everything

from keras_vit.recipes import fit
from keras_vit.recipes.recipe import Architecture, Optimizer
from keras_vit.recipes.recipe.file import read_recipe
from keras_vit.recipes.runs.checkpoints import TERMINATED
from keras_vit.recipes.runs.self_supervised import load_self_supervised
from keras_vit.recipes.training.model import build_model

AFTER = "on_train_batch_end"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def in_folder(recipe, folder, **run):
    return replace(recipe, run=replace(recipe.run, folder=str(folder), **run))


@pytest.mark.extended
def test_fine_tuning_after_sigterm(masked, supervised, folder, capsys):
    data = replace(supervised.data, image_size=12, batch_size=40, labels_per_class=10, validation_split="validation")
    architecture, optimizer = Architecture(patch_dropout=0.5), Optimizer("sgd", 0.05, warmup_steps=5)
    run = replace(masked.run, steps_per_execution=2)
    recipe = replace(supervised, architecture=architecture, data=data, optimizer=optimizer, run=run, total_steps=20)
    vit = build_model(masked.architecture, masked.data, masked.run)
    whole, _ = fit.train(recipe, vit)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        fit.train(in_folder(recipe, folder), vit, [at(12, lambda: os.kill(os.getpid(), signal.SIGTERM), AFTER)])
    assert stopped.value.code == TERMINATED and signal.getsignal(signal.SIGTERM) is handler
    assert "Saved step 12 in" in capsys.readouterr().out
    model, history = fit.train(in_folder(recipe, folder, resume=True), vit)
    assert model.optimizer.iterations == 20 and "val_top1" in history
    assert_variables(model, everything(whole))
    again, history = fit.train(in_folder(recipe, folder, resume=True), vit)
    assert history == {}
    np.testing.assert_array_equal(again.head.kernel, model.head.kernel)


@pytest.mark.slow
def test_model_without_labels_is_loaded_from_its_checkpoints(masked, folder):
    """With its head, which model.keras does not have."""
    recipe = in_folder(replace(masked, optimizer=replace(masked.optimizer, accumulation_steps=2)), folder)
    trained, _ = fit.pretrain(recipe)
    before = sorted(folder.rglob("*"))
    loaded = load_self_supervised(read_recipe(folder / "recipe.json"), folder)
    assert sorted(folder.rglob("*")) == before
    assert np.abs(loaded.head.kernel).max() > 0  # zeros at the start
    for ours, theirs in zip(trained.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    wider = replace(recipe, architecture=replace(recipe.architecture, width=24))
    with pytest.raises(ValueError, match=r"step-4 does not match .*recipe\.json"):
        load_self_supervised(wider, folder)
    (folder / "step-4.data-00000-of-00001").write_bytes(b"")
    with pytest.raises(ValueError, match="step-4 .*damaged"):
        load_self_supervised(recipe, folder)
