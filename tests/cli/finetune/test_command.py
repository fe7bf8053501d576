"""`keras-vit finetune` from a folder to a checked .tflite file, with a toy in place of published weights."""

import json
import shlex
from dataclasses import replace

import keras
import numpy as np
import pytest
import tyro
from PIL import Image

import keras_vit
from keras_vit.recipes import small_folder
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.data.split_by_class import split_by_class
from keras_vit.recipes.recipe import Data, Supervised
from keras_vit.recipes.recipe_file import read_recipe
from keras_vit_cli.default_weights import DEFAULT, OFFLINE
from keras_vit_cli.finetune.command import Finetune
from keras_vit_cli.finetune.plan import train_command
from keras_vit_cli.finetune.result import export_checked, print_result
from keras_vit_cli.main import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Dark and bright noise: /my photos/<class>/<image>."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 150)):
        (tmp_path / "my photos" / name).mkdir(parents=True)
        for i in range(10):
            pixels = random.integers(low, low + 100, (20, 24, 3), "uint8")
            Image.fromarray(pixels).save(tmp_path / "my photos" / name / f"{i}.png")
    return "my photos"


@pytest.fixture
def weights(trained_toy, tmp_path):
    trained_toy(preprocessing={"image_size": 16, "resize": "shortest", "mean": [0.4] * 3, "std": [0.3] * 3}).save(
        tmp_path / "toy.keras"
    )
    return "toy.keras"


@pytest.mark.slow
def test_from_a_folder_to_a_checked_file_and_again(folder, weights, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(small_folder, "MOST_EPOCHS", 4)
    files = [(name, f"{name}/{i}.png") for name in ("dark", "light") for i in range(10)]
    bad = next(x for i in range(50) if (x := ("dark", f"dark/bad{i}.png")) in split_by_class([*files, x])["test"])
    splits = {split: len({*images} - {bad}) for split, images in split_by_class([*files, bad]).items()}
    bad = bad[1]
    (tmp_path / folder / bad).write_bytes(b"no image")
    assert main(["finetune", folder, "--weights", weights]) == 0
    output = capsys.readouterr().out
    run = tmp_path / "runs" / folder
    assert {"model.keras", "labels.txt", "exported", "recipe.json", "model_card.md"} <= {x.name for x in run.iterdir()}
    top1 = json.loads((run / "metrics.json").read_text())["top1"]
    assert f"top-1 {100 * top1:.1f} % of {splits['test']} test images" in output
    assert f"images    {splits['train']} to train on, {splits['test']} to evaluate on; 2 classes: dark, light" in output
    assert f"1 of 21 files is no image; skipped: my photos/{bad}" in output
    assert "--per-class --max-corrupt 0.5\n" in output
    assert f"\n{splits['test']} images of folder:my photos (test)" in output and "| dynamic-int8 |" in output
    assert f"runs/{folder}/exported/model-dynamic-int8.tflite" in output
    assert "keras-vit classify IMAGE --model 'runs/my photos'" in output

    recipe = read_recipe(run / "recipe.json")
    assert recipe.data.mean == (0.4, 0.4, 0.4) and recipe.data.evaluation_resize == "shortest"
    model = keras_vit.load(run)
    assert model.class_names == ("dark", "light") and model.preprocessing.std == (0.3, 0.3, 0.3)
    command = train_command(recipe)
    assert command in output
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:3] == ["keras-vit", "train", "finetune-small"]
    again = tyro.cli(Supervised, default=RECIPES["finetune-small"], args=words[3:])
    architecture = RECIPES["finetune-small"].architecture
    run_again = replace(recipe.run, folder="runs/my photos-again", resume=False)
    assert again == replace(recipe, architecture=architecture, run=run_again)
    card = (run / "model_card.md").read_text()
    assert "| classes | 2: dark, light |" in card and 'variant": "B/16' not in card

    (run / "exported").rename(tmp_path / "moved")
    assert main(["finetune", folder, "--weights", weights]) == 0  # exports again, without training
    output = capsys.readouterr().out
    assert output.startswith("The run in runs/my photos is finished. For a new one add --output 'runs/my photos-2'")
    assert "Epoch" not in output and "| dynamic-int8 |" in output
    assert main(["finetune", "other", "--output", str(run)]) == 1
    assert f"has a run of folder:{folder} from toy.keras. Received: other." in capsys.readouterr().err
    (tmp_path / folder / "cat").mkdir()
    Image.new("RGB", (20, 24)).save(tmp_path / folder / "cat" / "1.png")
    assert main(["finetune", folder, "--weights", weights]) == 1
    error = capsys.readouterr().err
    assert "the classes (" in error and "'cat'" in error and "For a new run add --output" in error


def test_no_export_with_keras_on_jax(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    recipe = Supervised(data=Data("digits", test_split="validation"))
    assert export_checked(recipe, tmp_path) is None
    print_result(recipe, tmp_path, None, {"top1": 0.5, "images": 360})
    assert "\nFor a .tflite file repeat this command with KERAS_BACKEND=tensorflow" in capsys.readouterr().out


def test_mistakes_are_reported_together(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "photos").mkdir(parents=True)
    (tmp_path / "runs" / "photos" / "mine.txt").write_text("")
    assert main(["finetune", "photos", "--weights", "no.npz"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert "There is no folder 'photos'. Expected a folder with" in errors[0]
    assert "choose another --output" in errors[1] and "no.npz" in errors[2]
    monkeypatch.setattr("keras_vit.load", None)  # no download for a folder that cannot be used
    assert main(["finetune", "photos"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_run_has_the_name_of_the_folder(tmp_path, capsys, monkeypatch):
    (tmp_path / "photos" / "cat" / "runs" / "photos" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "photos" / "cat")
    assert main(["finetune", ".."]) == 1
    assert "runs/photos is not empty" in capsys.readouterr().err


def test_without_a_network_the_model_of_the_package_is_used(monkeypatch, capsys):
    def load(weights, **_):
        if weights == DEFAULT:
            raise ConnectionError("no network")
        return weights

    monkeypatch.setattr("keras_vit.load", load)
    assert Finetune("photos")._load() == (OFFLINE, OFFLINE)
    errors = capsys.readouterr().err
    assert "cannot be downloaded: no network" in errors and "--weights FILE" in errors
