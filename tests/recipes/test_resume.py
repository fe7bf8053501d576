"""An interrupted and resumed run ends with the same weights, bit for bit, as an uninterrupted one."""

import json
import os
import signal
from dataclasses import replace

import keras
import numpy as np
import pytest

from keras_vit.recipes import fit
from keras_vit.recipes.checkpoints.checkpoints import TERMINATED
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints
from keras_vit.recipes.recipe import Architecture, Data, MaskedAutoencoder, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.training.model import build_model

pytestmark = pytest.mark.slow


@pytest.fixture
def pretraining(data_dir, tmp_path):
    return MaskedPatch(
        architecture=Architecture("Ti/2", depth=1, width=12, mlp_dim=24, num_heads=3, dropout=0.1),
        # 1,097 images: the runs below reach the second epoch.
        data=Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=40, min_crop_area=0.5, flip=False),
        optimizer=Optimizer(name="adamw", weight_decay=0.1, learning_rate=3e-3, warmup_steps=5),
        run=Run(seed=1, folder=str(tmp_path / "run"), checkpoint_steps=8, keep_checkpoints=2, steps_per_execution=2),
        total_steps=36,
    )


class Interruption(keras.callbacks.Callback):
    """Calls `action` after a step, such as a power failure or a preemption."""

    def __init__(self, step, action):
        super().__init__()
        self.step, self.action = step, action

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            self.action()


def power_failure():
    raise ConnectionAbortedError


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def resumed(recipe):
    return replace(recipe, run=replace(recipe.run, resume=True))


def everything(model):
    return [np.asarray(variable) for variable in (*model.variables, *model.optimizer.variables)]


def test_pre_training_after_a_power_failure(pretraining, tmp_path):
    """Of a masked autoencoder; masked patches are those of tests/recipes/test_kill.py."""
    fields = {name: getattr(pretraining, name) for name in ("architecture", "data", "optimizer", "run", "total_steps")}
    fields["optimizer"] = replace(pretraining.optimizer, ema_momentum=0.9)
    recipe = MaskedAutoencoder(**fields, decoder_depth=1, decoder_width=8, decoder_heads=2)
    expected = everything(fit.pretrain(replace(recipe, run=replace(recipe.run, folder=None)))[0])
    with pytest.raises(ConnectionAbortedError):
        fit.pretrain(recipe, [Interruption(30, power_failure)])
    assert find_checkpoints(recipe.run.folder)[0] == str(tmp_path / "run" / "step-24")
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["total_steps"] == 36
    model, history = fit.pretrain(resumed(recipe))
    for value, reference in zip(everything(model), expected):
        np.testing.assert_array_equal(value, reference)
    assert len(history["loss"]) == 1
    remaining = {file.name for file in (tmp_path / "run").glob("step-*.index")}
    assert remaining == {"step-32.index", "step-36.index"}


def test_fine_tuning_after_sigterm(pretraining, tmp_path, capsys):
    recipe = Supervised(
        architecture=Architecture(patch_dropout=0.5),
        data=replace(pretraining.data, image_size=12, labels_per_class=10),
        optimizer=Optimizer(name="sgd", learning_rate=0.05, warmup_steps=5),
        run=replace(pretraining.run, checkpoint_steps=100),
        total_steps=20,
    )
    vit = build_model(pretraining.architecture, pretraining.data, pretraining.run)
    expected = everything(fit.train(replace(recipe, run=replace(recipe.run, folder=None)), vit)[0])
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        fit.train(recipe, vit, [Interruption(12, terminate)])
    assert stopped.value.code == TERMINATED and signal.getsignal(signal.SIGTERM) is handler
    assert "Saved step 12 in" in capsys.readouterr().out
    model, history = fit.train(resumed(recipe), vit)
    assert model.optimizer.iterations == 20 and "val_top1" in history
    for value, reference in zip(everything(model), expected):
        np.testing.assert_array_equal(value, reference)
    again, history = fit.train(resumed(recipe), vit)
    assert history == {}
    np.testing.assert_array_equal(again.head.kernel, model.head.kernel)
