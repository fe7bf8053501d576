import shlex
from dataclasses import replace
from pathlib import Path

import keras
import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit_cli import next_commands as module
from keras_vit_cli.next_commands import next_commands


def commands(name, folder="runs/x", **data):
    recipe = RECIPES[name]
    trained = replace(recipe, run=replace(recipe.run, folder=folder), data=replace(recipe.data, **data))
    return next_commands(trained, recipe)


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
    first, second = commands(name)
    assert first.startswith(f"keras-vit {expected} --weights runs/x/model.keras")
    assert second == "keras-vit inspect runs/x --images IMAGES --output runs/x/inspect.html"


def test_another_dataset_of_the_pre_training_is_kept():
    first, _ = map(shlex.split, commands("cifar10-mae", "my x", dataset="cifar100", test_split="val"))
    assert first[1:5] == ["train", "cifar10-finetune", "--weights", "my x/model.keras"]
    assert first[5:] == ["--data.dataset", "cifar100", "--data.test-split", "val"]


def test_a_folder_without_labels_is_not_a_folder_to_fine_tune_on():
    first, second = map(shlex.split, commands("cifar10-mae", "my x", dataset="folder:/my images"))
    assert first[1:5] == ["finetune", "FOLDER", "--weights", "my x/model.keras"]
    assert second[1:] == ["inspect", "my x", "--images", "/my images", "--output", "my x/inspect.html"]


def test_commands_for_a_classifier(monkeypatch):
    monkeypatch.setattr(module, "keras_class", lambda path: "VisionTransformer")
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
    monkeypatch.setattr(module, "keras_class", lambda path: "BiT")
    assert commands("cifar10", data_dir="/d") == expected[:2]
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert commands("cifar10", data_dir="/d") == expected[:1]
