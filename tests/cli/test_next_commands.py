import shlex
from dataclasses import replace
from pathlib import Path

import keras
import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit_cli import next_commands as module
from keras_vit_cli.next_commands import next_commands


def trained(name, folder="runs/x", **data):
    recipe = RECIPES[name]
    return replace(recipe, run=replace(recipe.run, folder=folder), data=replace(recipe.data, **data))


@pytest.mark.parametrize(
    "name,expected",
    [
        ("digits-masked-patch", "train digits-finetune"),
        ("cifar10-mae", "train cifar10-finetune"),
        ("mae-l16", "train mae-l16-finetune"),
        ("masked-patch-imagenet-b16", "train finetune-imagenet"),
        ("masked-patch-b16", "finetune FOLDER"),
    ],
)
def test_a_model_without_labels_is_fine_tuned(name, expected):
    first, second = next_commands(trained(name), RECIPES[name])
    assert first.startswith(f"keras-vit {expected} --weights runs/x/model.keras")
    assert second == "keras-vit inspect runs/x --images IMAGES --output runs/x/inspect.html"


def test_another_dataset_of_the_pre_training_is_kept():
    recipe = trained("cifar10-mae", "my runs/x", dataset="folder:/my images", test_split="val")
    assert [shlex.split(command) for command in next_commands(recipe, RECIPES["cifar10-mae"])] == [
        ["keras-vit", "train", "cifar10-finetune", "--weights", "my runs/x/model.keras"]
        + ["--data.dataset", "folder:/my images", "--data.test-split", "val"],
        ["keras-vit", "inspect", "my runs/x", "--images", "/my images", "--output", "my runs/x/inspect.html"],
    ]


def test_commands_for_a_classifier(monkeypatch):
    monkeypatch.setattr(module, "keras_class", lambda path: "VisionTransformer")
    recipe, named = trained("cifar10", data_dir="/d"), RECIPES["cifar10"]
    data = "--dataset cifar10 --split test --data-dir /d"
    expected = [
        f"keras-vit evaluate runs/x {data} --per-class",
        f"keras-vit export runs/x {data} --output runs/x/exported",
        "keras-vit inspect runs/x --images IMAGES --output runs/x/inspect.html",
    ]
    assert next_commands(recipe, named) == expected
    photos = trained("cifar10", dataset="folder:~/my photos", max_corrupt=0.2)
    evaluate, export, inspect = next_commands(photos, named)
    assert evaluate.endswith(" --max-corrupt 0.2 --per-class") and " --max-corrupt 0.2 " in export
    assert f"--images '{Path.home()}/my photos' " in inspect
    monkeypatch.setattr(module, "keras_class", lambda path: "BiT")
    assert next_commands(recipe, named) == expected[:2]
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert next_commands(recipe, named) == expected[:1]
