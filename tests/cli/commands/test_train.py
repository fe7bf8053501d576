"""`keras-vit train` and `sweep`, and what they suggest next."""

import shlex
from dataclasses import replace
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe.file import write_recipe
from keras_vit_cli.commands import train
from keras_vit_cli.commands.train import find_recipe, next_commands, run_name


def test_recipes_are_listed(run_cli):
    status, output, _ = run_cli("train")
    names = [name for line in output.splitlines() if line.startswith("  ") for name in line.split()]
    assert status == 0 and names == list(RECIPES) and names[0].startswith("digits-")  # of a laptop first


@pytest.fixture
def moved(tmp_path, monkeypatch):
    """The recipe of an interrupted run in runs/new, before runs/old, and in a bucket; a link; the file alone."""
    monkeypatch.chdir(tmp_path)
    recipe = replace(RECIPES["digits-finetune"], weights=None)
    recipe = replace(recipe, run=replace(recipe.run, folder="runs/old"))
    for folder in ("runs/new", "alone", "ram://bucket/new"):
        tf.io.gfile.makedirs(folder)
        write_recipe(recipe, f"{folder}/recipe.json")
    for name in ("run.json", "step-1.index"):
        (tmp_path / "runs" / "new" / name).write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "runs" / "new")
    return recipe


@pytest.mark.parametrize(
    "name,folder",
    [
        ("runs/new", "runs/new"),
        ("./runs/new/", "./runs/new"),
        ("{}/runs/new", "{}/runs/new"),
        ("link", "link"),
        ("runs/new/recipe.json", "runs/new"),
        ("{}/link/recipe.json", "{}/link"),
        ("ram://bucket/new", "ram://bucket/new"),
        ("ram://bucket/new/", "ram://bucket/new"),
        ("alone/recipe.json", "runs/old"),
    ],
)
def test_a_run_is_resumed_where_it_is_named(moved, name, folder, tmp_path, monkeypatch, runs, run_cli):
    name, folder = name.format(tmp_path), folder.format(tmp_path)
    assert find_recipe(name) == replace(moved, run=replace(moved.run, folder=folder))
    status, _, errors = run_cli("train", name, "--run.resume")
    assert (status, errors) == (0, "") and [recipe.run.folder for recipe in runs] == [folder]
    if folder != "runs/old":
        run_cli("train", name, "--run.folder", "runs/third")
        assert runs[-1].run.folder == "runs/third"


def test_the_recipe_in_the_current_folder_is_that_of_its_run(moved, monkeypatch):
    monkeypatch.chdir("runs/new")
    assert find_recipe("recipe.json").run.folder == find_recipe(".").run.folder == "."


def test_runs_are_named_by_their_folder(moved):
    for name in ("new", "runs/new", "runs/new/", "runs/new/recipe.json", "ram://bucket/new"):
        assert run_name(name) == "new"


def commands(name, folder="runs/x", **data):
    recipe = RECIPES[name]
    trained = replace(recipe, run=replace(recipe.run, folder=folder), data=replace(recipe.data, **data))
    return next_commands(trained)


def test_a_model_without_labels_is_fine_tuned():
    first, second = map(shlex.split, commands("cifar10-mae", "my x", dataset="folder:/my images"))
    assert first[1:5] == ["finetune", "FOLDER", "--weights", "my x/model.keras"]
    assert second[1:] == ["inspect", "my x", "--images", "/my images", "--output", "my x/inspect.html"]


def test_commands_for_a_classifier(monkeypatch):
    monkeypatch.setattr(train, "keras_class", lambda path: "VisionTransformer")
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
    monkeypatch.setattr(train, "keras_class", lambda path: "BiT")
    assert commands("cifar10", data_dir="/d") == expected[:2]
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert commands("cifar10", data_dir="/d") == expected[:1]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Replaces training; returns the recipes that were run. The larger the learning rate, the better."""
    ran = []

    def run(recipe):
        ran.append(recipe)
        tf.io.gfile.makedirs(recipe.run.folder)
        return {"top1": recipe.optimizer.learning_rate, "images": 1}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_recipe, "run", run)
    monkeypatch.setattr("keras_vit_cli.commands.train.report_run", lambda recipe: None)
    return ran


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
