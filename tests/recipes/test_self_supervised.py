"""The model of a run without labels, with its head or decoder, from the checkpoints in its folder."""

from dataclasses import replace

import numpy as np
import pytest

from keras_vit.recipes.configs.digits import MASKED_PATCH
from keras_vit.recipes.fit import pretrain
from keras_vit.recipes.masked_autoencoder.model import MaskedAutoencoderModel
from keras_vit.recipes.recipe import Architecture, MaskedAutoencoder
from keras_vit.recipes.recipe_file import read_recipe
from keras_vit.recipes.self_supervised import load_self_supervised

pytestmark = pytest.mark.slow


def recipe(data_dir, folder, **optimizer):
    return replace(
        MASKED_PATCH,
        architecture=Architecture("Ti/2", depth=1, width=12, mlp_dim=24, num_heads=3, dropout=0.1),
        data=replace(MASKED_PATCH.data, data_dir=data_dir, batch_size=8),
        optimizer=replace(MASKED_PATCH.optimizer, warmup_steps=1, **optimizer),
        run=replace(MASKED_PATCH.run, folder=str(folder), steps_per_execution=1),
        total_steps=3,
    )


@pytest.mark.parametrize("optimizer", [{}, {"ema_momentum": 0.9, "accumulation_steps": 2}])
def test_loaded_model_equals_the_trained_one(data_dir, tmp_path, optimizer):
    trained, _ = pretrain(recipe(data_dir, tmp_path / "run", **optimizer))
    before = sorted(tmp_path.rglob("*"))
    found = load_self_supervised(read_recipe(tmp_path / "run" / "recipe.json"), tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before
    assert np.abs(found.head.kernel).max() > 0  # zeros at the start
    for ours, theirs in zip(trained.weights, found.weights):
        np.testing.assert_array_equal(ours, theirs)


def test_loaded_autoencoder_equals_the_trained_one(data_dir, tmp_path):
    masked = recipe(data_dir, tmp_path / "run")
    fields = {name: getattr(masked, name) for name in ("architecture", "data", "optimizer", "run", "total_steps")}
    trained, _ = pretrain(MaskedAutoencoder(**fields, decoder_depth=1, decoder_width=8, decoder_heads=2))
    found = load_self_supervised(read_recipe(tmp_path / "run" / "recipe.json"), tmp_path / "run")
    assert isinstance(found, MaskedAutoencoderModel)
    for ours, theirs in zip(trained.weights, found.weights):
        np.testing.assert_array_equal(ours, theirs)


def test_damaged_or_foreign_checkpoint_raises(data_dir, tmp_path):
    masked_recipe = recipe(data_dir, tmp_path / "run")
    pretrain(masked_recipe)
    wider = replace(masked_recipe, architecture=replace(masked_recipe.architecture, width=24))
    with pytest.raises(ValueError, match="step-3 does not match the model of recipe.json"):
        load_self_supervised(wider, tmp_path / "run")
    (tmp_path / "run" / "step-3.data-00000-of-00001").write_bytes(b"")
    with pytest.raises(ValueError, match="step-3 does not match.* it is damaged"):
        load_self_supervised(masked_recipe, tmp_path / "run")
