"""`keras-vit finetune` from a folder to a checked .tflite file, with a toy in place of published weights."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import keras
import pytest
from PIL import Image

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Data, Supervised
from keras_vit_cli.commands.finetune.command import Finetune, export_checked, print_result
from keras_vit_cli.commands.finetune.previous_run import check_same_run, previous_recipe
from keras_vit_cli.inputs import DEFAULT, OFFLINE
from keras_vit_cli.preprocessing_flags import LoadingFlags


def test_exported_files_of_another_run_are_not_taken_for_its_own(tmp_path, run_cli):
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / name / "1.png")
    (tmp_path / "run" / "exported").mkdir(parents=True)
    (tmp_path / "run" / "recipe.json").write_text("{}")  # checkpoints and model were deleted
    status, _, errors = run_cli("finetune", tmp_path / "photos", "--output", tmp_path / "run")
    assert status == 1 and "run/exported is of an earlier run" in errors and "--output" in errors


def test_no_export_with_keras_on_jax(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    recipe = Supervised(data=Data("digits", test_split="validation"))
    assert export_checked(recipe, tmp_path) is None
    print_result(recipe, tmp_path, None, {"top1": 0.5, "images": 360}, [])
    assert "KERAS_BACKEND=tensorflow" in capsys.readouterr().out


def test_mistakes_are_reported_together(tmp_path, run_cli, monkeypatch, no_load):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "photos").mkdir(parents=True)
    (tmp_path / "runs" / "photos" / "mine.txt").write_text("")
    for command, words in (
        ("finetune photos --weights no.npz", ["'photos'", "--output", "no.npz"]),
        ("finetune photos", ["'photos'", "--output"]),
    ):
        status, _, errors = run_cli(*command.split())
        assert status == 1
        assert [word in line for word, line in zip(words, errors.splitlines(), strict=True)] == [True] * len(words)


def test_the_run_has_the_name_of_the_folder(tmp_path, run_cli, monkeypatch):
    (tmp_path / "photos" / "cat" / "runs" / "photos" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "photos" / "cat")
    status, _, errors = run_cli("finetune", "..")
    assert status == 1 and "runs/photos is not empty" in errors


def test_without_a_network_the_model_of_the_package_is_used(monkeypatch, capsys):
    def load(weights, **_):
        if weights == DEFAULT:
            raise ConnectionError("no network")
        return weights

    monkeypatch.setattr("keras_vit.load", load)
    assert Finetune("photos")._load() == (OFFLINE, OFFLINE)
    errors = capsys.readouterr().err
    assert "no network" in errors and "--weights FILE" in errors


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A finished run of `photos` from `toy.keras`, whose images are scaled as ImageNet's."""
    monkeypatch.chdir(tmp_path)
    small, mean_std = RECIPES["finetune-small"], LoadingFlags("imagenet").fields()
    data = replace(small.data, dataset="folder:photos", interpolation="bicubic", antialias=True, **mean_std)
    recipe = replace(small, weights="toy.keras", data=data)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text(json.dumps({"kind": "Supervised", **asdict(recipe)}))
    (tmp_path / "run" / "metrics.json").write_text('{"loss": 2.0, "top1": 0.5, "images": 12}')
    (tmp_path / "toy.keras").write_text("")
    return Path("run")


def check(run, weights=None, folder="photos", class_weight=None, **flags):
    check_same_run(Path(folder), weights, LoadingFlags(**flags), run, class_weight)


def test_the_same_command_and_one_without_options_pass(run):
    Path("prepared.json").write_text(json.dumps({"image_size": [384, 384], "resize": "squash", "origin": "file"}))
    check(run)
    check(run, "toy.keras", preprocessing="imagenet", interpolation="lanczos3", resize="squash", crop_fraction=1.0)
    check(run, preprocessing="prepared.json")


def test_another_preparation_is_an_error_that_states_both(run):
    with pytest.raises(ValueError) as error:
        check(run, preprocessing="half", interpolation="nearest", crop_fraction=0.9)
    before, after = str(error.value).split("Received")
    for text, fields in (
        (before, "mean 0.485 0.456 0.406, std 0.229 0.224 0.225, crop_fraction 1.0, interpolation bicubic"),
        (after, "mean 0.5 0.5 0.5, std 0.5 0.5 0.5, crop_fraction 0.9, interpolation bilinear"),
    ):
        assert fields in text
    assert "--output run-2" in after
    with pytest.raises(ValueError, match="folder:photos from toy.keras, with mean .* other and --weights"):
        check(run, "other.npz", "other", preprocessing="half")
    with pytest.raises(ValueError, match="crop_fraction"):
        check(run, crop_fraction=2.0)


def test_other_class_weights_are_an_error(run):
    with pytest.raises(ValueError, match="Received: --class-weight balanced.* --output run-2"):
        check(run, class_weight="balanced")
    file = run / "recipe.json"
    file.write_text(file.read_text().replace('"class_weight": null', '"class_weight": "balanced"'))
    check(run, class_weight="balanced")


@pytest.mark.parametrize("size,others", [(224, [(224, 112), 112]), ([32, 128], [(128, 32), 32])])
def test_another_image_size_is_an_error(run, size, others):
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["data"]["image_size"] = size
    (run / "recipe.json").write_text(json.dumps(recipe))
    check_same_run(Path("photos"), None, LoadingFlags(image_size=size), run)
    for other in others:
        with pytest.raises(ValueError, match="--image-size .* Received: --image-size"):
            check_same_run(Path("photos"), None, LoadingFlags(image_size=other), run)


@pytest.mark.parametrize("name", ["moved", "copied/", "{}/moved"])
@pytest.mark.parametrize("is_finished", [True, False])
def test_a_run_that_was_moved_or_copied_goes_on_where_it_is(run, name, is_finished, tmp_path, monkeypatch, run_cli):
    recorded = json.loads((run / "recipe.json").read_text())
    recorded["run"]["folder"] = "run"
    (run / "recipe.json").write_text(json.dumps(recorded))
    (run / "model.keras").write_text("")
    if not is_finished:
        (run / "metrics.json").rename(run / "step-8.index")
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "cat" / "1.png")
    shutil.copytree("run", "copied")
    run.rename("moved")
    used = []
    monkeypatch.setattr("keras_vit.recipes.run_recipe.run", lambda recipe: used.append(recipe.run) or {})
    monkeypatch.setattr(
        "keras_vit_cli.commands.finetune.command.export_checked", lambda recipe, output: used.append(recipe.run)
    )
    monkeypatch.setattr("keras_vit_cli.commands.finetune.command.print_result", lambda *_: None)
    folder = name.format(tmp_path)
    assert run_cli("finetune", "photos", "--output", folder)[0] == 0
    assert [each.folder for each in used] == [folder.rstrip("/")] * (1 if is_finished else 2)
    assert not run.exists()


def test_a_finished_run_without_its_model_is_not_presented(run):
    with pytest.raises(ValueError, match="finished, .*model.keras is missing. For a new run add --output run-2"):
        previous_recipe(run)
    (run / "step-8.index").touch()
    with pytest.raises(ValueError, match="Delete run/metrics.json"):
        previous_recipe(run)


def test_weights_that_no_longer_exist_are_an_error(run):
    Path("toy.keras").unlink()
    check(run)  # a finished run does not require them
    with pytest.raises(FileNotFoundError, match="omit --weights"):
        check(run, "toy.keras")
    (run / "metrics.json").rename(run / "step-8.index")
    with pytest.raises(FileNotFoundError, match="toy.keras.* --output"):
        check(run)


def test_a_damaged_recipe_is_left_to_its_reader(run):
    for text in ("", "[]", '{"data": 3}', '{"data": {"dataset": 3}}'):
        (run / "recipe.json").write_text(text)
        check(run, "other.npz")
