"""What `keras-vit finetune` checks of the run in its output folder, before TensorFlow is imported."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit_cli.finetune.previous_run import check_same_run
from keras_vit_cli.preprocessing_flags import PreprocessingFlags


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A finished run of `photos` from `toy.keras`, whose images are scaled as ImageNet's."""
    monkeypatch.chdir(tmp_path)
    small, mean_std = RECIPES["finetune-small"], PreprocessingFlags("imagenet").fields()
    data = replace(small.data, dataset="folder:photos", interpolation="bicubic", antialias=True, **mean_std)
    recipe = replace(small, weights="toy.keras", data=data)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text(json.dumps({"kind": "Supervised", **asdict(recipe)}))
    (tmp_path / "run" / "metrics.json").write_text("{}")
    (tmp_path / "toy.keras").write_text("")
    return Path("run")


def check(run, weights=None, folder="photos", **flags):
    check_same_run(Path(folder), weights, PreprocessingFlags(**flags).fields(), run)


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
