import json

import pytest

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe_file import write_recipe
from keras_vit_cli.train import find_recipe, run_name

TOY = (
    "--architecture.variant Ti/4 --architecture.depth 1 --architecture.width 12 --architecture.mlp-dim 24 "
    "--architecture.num-heads 3 --data.image-size 8 --data.crop none --optimizer.warmup-steps 1 "
    "--run.steps-per-execution 2 --total-steps 4 --data.train-split train[:64] --data.test-split test[:32]"
).split()


def test_recipes_are_listed(run_cli):
    status, output, _ = run_cli("train")
    names = [name for line in output.splitlines() if line.startswith("  ") for name in line.split()]
    assert status == 0 and names == list(RECIPES) and names[0].startswith("digits-")  # of a laptop first


@pytest.mark.slow
def test_recipe_by_name_and_from_its_file(data_dir, tmp_path, run_cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output, _ = run_cli("train", "digits-masked-patch", "--data.data-dir", data_dir, *TOY)
    assert status == 0 and "4 steps" in output
    first = tmp_path / "runs" / "digits-masked-patch"
    assert {"model.keras", "metrics.json", "recipe.json", "log.csv"} <= {file.name for file in first.iterdir()}
    again = ["--run.folder", "again", "--run.checkpoint-steps", 2]
    assert run_cli("train", first / "recipe.json", *again)[0] == 0
    one, two = (json.loads((folder / "metrics.json").read_text()) for folder in (first, tmp_path / "again"))
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-6)

    tuned = "--total-steps 4 --optimizer.warmup-steps 1 --data.image-size 8 --run.steps-per-execution 2 "
    tuned += "--data.train-split train[:64] --data.test-split test[:32]"
    status, output, _ = run_cli("train", "digits-finetune", "--data.data-dir", data_dir, *tuned.split())
    folder = tmp_path / "runs" / "digits-finetune"
    assert status == 0 and (folder / "labels.txt").read_text().split() == [str(digit) for digit in range(10)]
    top1 = json.loads((folder / "metrics.json").read_text())["top1"]
    assert 0 <= top1 <= 1 and f"\ntop-1 {100 * top1:.1f} %\n" in output
    assert "runs/digits-finetune/model.keras\n" in output and "keras-vit evaluate runs/digits-finetune " in output
    assert f"| top1 | {top1:.4g} |" in (folder / "model_card.md").read_text()


def test_options_of_a_masked_autoencoder(tmp_path, run_cli, monkeypatch):
    recipes = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_recipe, "run", lambda recipe: recipes.append(recipe) or {"loss": 1.0})
    options = "--decoder-depth 1 --decoder-width 8 --decoder-heads 2 --masked-fraction 0.5 --no-normalize-targets "
    run_cli("train", "mae-b16", *TOY, *f"{options}--data.dataset digits --run.epoch-steps 4".split())
    (recipe,) = recipes
    assert (recipe.decoder_width, recipe.masked_fraction, recipe.normalize_targets) == (8, 0.5, False)
    assert (recipe.data.dataset, recipe.run.folder, recipe.run.epoch_steps) == ("digits", "runs/mae-b16", 4)


def test_the_folder_of_a_run_means_its_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "x").mkdir(parents=True)
    recipe = find_recipe("plain-s16-90")
    write_recipe(recipe, tmp_path / "runs" / "x" / "recipe.json")
    assert find_recipe("runs/x") == find_recipe("runs/x/recipe.json") == recipe == RECIPES["plain-s16-90"]
    for name in ("x", "runs/x", "runs/x/", "runs/x/recipe.json"):
        assert run_name(name) == "x"
