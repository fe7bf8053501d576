"""Shared by tests of checkpoints."""

import shutil

import pytest
from checkpointed_training import build, everything, fit

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
