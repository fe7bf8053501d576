"""The settings as printed, with and without the time for all of the model."""

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tyro
from PIL import Image

import keras_vit
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Architecture, Data, Supervised
from keras_vit.recipes.small_folder import Machine
from keras_vit_cli.finetune import plan
from keras_vit_cli.finetune.folder import open_images


@pytest.fixture
def folder(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(15):
            Image.fromarray(np.full((9, 11, 3), 10 * i, "uint8")).save(tmp_path / name / f"{i}.png")
    return open_images(tmp_path, Data())


@pytest.mark.parametrize(
    "forward_seconds,expected",
    [
        (0.01, ["15 s"]),
        (4.0, ["34 minutes", "1.6 hours", "head only", "--trainable-blocks None", " --trainable-blocks 0"]),
    ],
)
def test_duration_and_the_part_that_is_trained(folder, toy, capsys, monkeypatch, forward_seconds, expected):
    monkeypatch.setattr(plan, "measure", lambda *_: Machine(False, forward_seconds, 0.0))
    recipe = plan.choose_recipe(folder, "toy.keras", toy(num_classes=0), Path("runs/x"))
    printed = capsys.readouterr().out
    assert all(words in printed for words in expected), printed
    assert ("--trainable-blocks" in printed) == (recipe.trainable_blocks is not None)
    assert "24 to train on, 6 to evaluate on; 2 classes: cat, dog" in printed
    words = shlex.split(plan.train_command(recipe).replace("\\\n", ""))[3:]
    all_of_it = tyro.cli(Supervised, default=RECIPES["finetune-small"], args=[*words, "--trainable-blocks", "None"])
    defaults = RECIPES["finetune-small"].architecture
    run = replace(recipe.run, folder="runs/x-again")
    assert all_of_it == replace(recipe, architecture=defaults, trainable_blocks=None, run=run)
    assert (recipe.architecture.variant, recipe.architecture.width) == ("Ti/4", 12)  # those of the weights


@pytest.mark.parametrize(
    "build,expected",
    [
        (lambda: keras_vit.ViT("Ti/16", image_size=32, num_classes=0), Architecture("Ti/16")),
        (
            lambda: keras_vit.ViT("R6+Ti/4", image_size=32, num_classes=0, depth=1),
            Architecture("R6+Ti/4", depth=1, width=192, mlp_dim=768, num_heads=3),
        ),
        (lambda: keras_vit.BiT(stages=(1,), image_size=32, num_classes=0), plan.SMALL.architecture),
    ],
)
def test_the_recipe_states_the_architecture_of_the_weights(build, expected):
    assert plan._architecture(build()) == expected


@pytest.mark.slow
def test_timing_is_of_seconds_per_image(folder, toy):
    machine = plan.measure(toy(num_classes=0), Data(dataset=folder.data.dataset), folder.dataset, False)
    assert 0 < machine.forward_seconds < 1 and 0 < machine.decode_seconds < 1
