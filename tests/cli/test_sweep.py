import json
from pathlib import Path

import pytest

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe_file import write_recipe
from keras_vit_cli.main import main


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Replaces training; returns the recipes that were run. The larger the learning rate, the better."""
    ran = []

    def run(recipe):
        ran.append(recipe)
        Path(recipe.run.folder).mkdir(parents=True)
        return {"top1": recipe.optimizer.learning_rate}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_recipe, "run", run)
    return ran


def test_learning_rates_then_seeds_then_a_table(runs, tmp_path, capsys):
    changes = "--recipe.total-steps 70 --recipe.weights None --learning-rates 0.1 0.2 --seeds 3 4".split()
    assert main(["sweep", "digits-finetune", *changes]) == 0
    folder = "runs/digits-finetune-sweep"
    assert [recipe.run.folder for recipe in runs] == [
        f"{folder}/{name}" for name in ("rate-0.1", "rate-0.2", "seed-3", "seed-4")
    ]
    assert [recipe.optimizer.learning_rate for recipe in runs] == [0.1, 0.2, 0.2, 0.2]
    assert {recipe.total_steps for recipe in runs} == {70}
    assert "| learning rate 0.2, held out | 20.00% |" in capsys.readouterr().out
    assert json.loads((tmp_path / folder / "sweep.json").read_text())["learning_rate"] == 0.2


@pytest.mark.parametrize(
    "name,message",
    [
        ("digits-masked-patch", "without labels"),
        ("mae-b16", "without labels"),
        ("jft-b16", "--recipe.data.dataset"),
        ("digits-finetune", "train it with `keras-vit train digits-masked-patch`"),
    ],
)
def test_recipes_that_cannot_be_swept(runs, name, message, capsys):
    assert main(["sweep", name]) == 1
    assert message in capsys.readouterr().err and not runs


@pytest.mark.parametrize(
    "options,tuning",
    [
        ([], ("train[:90%]", "train[90%:]")),
        (["--recipe.data.validation-split", "validation"], ("train", "validation")),
        (["--recipe.data.train-split", "train[:80%]", "--recipe.data.test-split", "train[80%:]"], None),
    ],
)
def test_held_out_images_are_no_test_images(runs, options, tuning, capsys):
    fixed = ["--recipe.data.dataset", "digits", "--recipe.weights", "None", "--learning-rates", "0.1"]
    status = main(["sweep", "finetune-pets", *fixed, *options])
    if tuning is None:
        assert status == 1 and "Set both tuning_split and held_out_split" in capsys.readouterr().err and not runs
    else:
        assert status == 0 and (runs[0].data.train_split, runs[0].data.test_split) == tuning


def test_sweep_of_a_recipe_file_is_named_after_its_folder(runs, tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    write_recipe(RECIPES["digits-finetune"], tmp_path / "runs" / "mine" / "recipe.json")
    options = ["--recipe.weights", "None"]
    assert main(["sweep", "runs/mine/recipe.json", *options, "--learning-rates", "0.1", "--seeds", "3"]) == 0
    assert [recipe.run.folder for recipe in runs] == ["runs/mine-sweep/rate-0.1", "runs/mine-sweep/seed-3"]
