"""Shared by tests of runs."""

import shutil

import pytest
from checkpointed_training import build, everything, fit

from keras_vit.recipes.recipe import Data, Optimizer, Run, Supervised
from keras_vit.recipes.runs.checkpoints import Checkpoints


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of a finished run with checkpoints of steps 4, 8 and 12, and its variables."""
    folder, model = tmp_path_factory.mktemp("finished"), build()
    fit(model, Checkpoints(folder, every_steps=4))
    return folder, everything(model)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(finished[0], tmp_path / "run")


@pytest.fixture
def recipe(data_dir, tmp_path):
    return Supervised(
        data=Data(dataset="digits", data_dir=data_dir, image_size=16, batch_size=32),
        optimizer=Optimizer(name="adamw", weight_decay=0.1, warmup_steps=10, accumulation_steps=2, ema_momentum=0.99),
        run=Run(folder=str(tmp_path / "run"), epoch_steps=30),
        total_steps=100,
    )
