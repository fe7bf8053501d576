"""`keras-vit train` and `sweep`, and what they suggest next."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import keras
import pytest

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe_file import write_recipe
from keras_vit_cli.inspect import model as inspect_model
from keras_vit_cli.train import find_recipe, next_commands, run_name

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
    status, output, errors = run_cli("train", "digits-masked-patch", "--data.data-dir", data_dir, *TOY)
    assert status == 0 and "4 steps" in output
    assert not set("\r\b\x1b") & set(output + errors)  # in a pipe: lines, without control codes
    assert "4/4 - " in output
    first = tmp_path / "runs" / "digits-masked-patch"
    assert {"model.keras", "metrics.json", "recipe.json", "log.csv"} <= {file.name for file in first.iterdir()}
    again = ["--run.folder", "again", "--run.checkpoint-steps", 2]
    status, output, _ = run_cli("train", first / "recipe.json", *again, "--quiet")
    assert status == 0 and "4/4 - " not in output
    one, two = (json.loads((folder / "metrics.json").read_text()) for folder in (first, tmp_path / "again"))
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-6)


def test_the_folder_of_a_run_means_its_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "x").mkdir(parents=True)
    recipe = find_recipe("plain-s16-90")
    write_recipe(recipe, tmp_path / "runs" / "x" / "recipe.json")
    assert find_recipe("runs/x") == find_recipe("runs/x/recipe.json") == recipe == RECIPES["plain-s16-90"]
    for name in ("x", "runs/x", "runs/x/", "runs/x/recipe.json"):
        assert run_name(name) == "x"


def commands(name, folder="runs/x", **data):
    recipe = RECIPES[name]
    trained = replace(recipe, run=replace(recipe.run, folder=folder), data=replace(recipe.data, **data))
    return next_commands(trained)


def test_a_model_without_labels_is_fine_tuned():
    first, second = map(shlex.split, commands("cifar10-mae", "my x", dataset="folder:/my images"))
    assert first[1:5] == ["finetune", "FOLDER", "--weights", "my x/model.keras"]
    assert second[1:] == ["inspect", "my x", "--images", "/my images", "--output", "my x/inspect.html"]


def test_commands_for_a_classifier(monkeypatch):
    monkeypatch.setattr(inspect_model, "keras_class", lambda path: "VisionTransformer")
    data = "--dataset cifar10 --split test --data-dir /d"
    expected = [
        f"keras-vit evaluate runs/x {data} --per-class",
        f"keras-vit export runs/x {data} --output runs/x/exported",
        "keras-vit inspect runs/x --images IMAGES --output runs/x/inspect.html",
    ]
    assert commands("cifar10", data_dir="/d") == expected
    evaluate, export, inspect = commands("cifar10", dataset="folder:~/my photos", max_corrupt=0.2)
    assert evaluate.endswith(" --max-corrupt 0.2 --per-class") and " --max-corrupt 0.2 " in export
    assert f"--images '{Path.home()}/my photos' " in inspect
    monkeypatch.setattr(inspect_model, "keras_class", lambda path: "BiT")
    assert commands("cifar10", data_dir="/d") == expected[:2]
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert commands("cifar10", data_dir="/d") == expected[:1]


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
