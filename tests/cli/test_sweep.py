import json
from pathlib import Path

import pytest

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe_file import write_recipe


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


def test_learning_rates_then_seeds_then_a_table(runs, tmp_path, run_cli):
    changes = "--recipe.total-steps 70 --recipe.weights None --learning-rates 0.1 0.2 --seeds 3 4"
    status, output, _ = run_cli("sweep", "digits-finetune", *changes.split())
    folder = "runs/digits-finetune-sweep"
    names = ("rate-0.1", "rate-0.2", "seed-3", "seed-4")
    assert status == 0 and [recipe.run.folder for recipe in runs] == [f"{folder}/{name}" for name in names]
    assert [recipe.optimizer.learning_rate for recipe in runs] == [0.1, 0.2, 0.2, 0.2]
    assert {recipe.total_steps for recipe in runs} == {70} and "| learning rate 0.2, held out | 20.00% |" in output
    assert json.loads((tmp_path / folder / "sweep.json").read_text())["learning_rate"] == 0.2


@pytest.mark.parametrize(
    "options,tuning",
    [
        ([], ("train[:90%]", "train[90%:]")),
        (["--recipe.data.validation-split", "validation"], ("train", "validation")),
    ],
)
def test_held_out_images_are_no_test_images(runs, options, tuning, run_cli):
    fixed = ["--recipe.data.dataset", "digits", "--recipe.weights", "None", "--learning-rates", "0.1"]
    assert run_cli("sweep", "finetune-pets", *fixed, *options)[0] == 0
    assert (runs[0].data.train_split, runs[0].data.test_split) == tuning


def test_sweep_of_a_recipe_file_is_named_after_its_folder(runs, tmp_path, run_cli):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    write_recipe(RECIPES["digits-finetune"], tmp_path / "runs" / "mine" / "recipe.json")
    options = "--recipe.weights None --learning-rates 0.1 --seeds 3"
    assert run_cli("sweep", "runs/mine/recipe.json", *options.split())[0] == 0
    assert [recipe.run.folder for recipe in runs] == ["runs/mine-sweep/rate-0.1", "runs/mine-sweep/seed-3"]
