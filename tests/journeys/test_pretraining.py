"""Masked patches without labels, then inspection, fine-tuning at twice the size, probes, shards, sweeps and VTAB."""

import json
import re

import numpy as np
import pytest

import keras_vit
from journeys.cells import Cell
from journeys.training import COMMON, SETTINGS, command, read_test_images
from keras_vit.recipes.evaluation import vtab
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
TINY = [*COMMON, "--total-steps", "8"]


@pytest.fixture(scope="module")
def pretrained(journey_data, tmp_path_factory):
    """model.keras of masked-patch pre-training, without a head, at 8 x 8 pixels."""
    folder = tmp_path_factory.mktemp("pretrained")
    cell = Cell("masked_patch", "one", "float32", False, False, None, False)
    assert main(command(cell, journey_data, folder)) == 0
    return folder / "model.keras"


def recipe_options(words, prefix):
    """Options of `keras-vit sweep`, whose recipe's fields have a prefix."""
    return [word.replace("--", f"--{prefix}", 1) for word in words]


def test_fine_tuning_at_twice_the_size(pretrained, journey_data, tmp_path):
    photos = journey_data / "photos"
    report = tmp_path / "report.html"
    assert main(["inspect", str(pretrained), "--images", str(photos / "test" / "red"), "--output", str(report)]) == 0
    assert report.read_text().count("<img") + report.read_text().count("<canvas") > 0

    options = ["--weights", str(pretrained), "--data.dataset", f"folder:{photos}", "--data.validation-split", "test"]
    larger = [*SETTINGS, "--total-steps", "8", "--data.image-size", "16", "--run.folder", str(tmp_path / "run")]
    assert main(["train", "digits-finetune", *options, *larger]) == 0
    model = keras_vit.load(tmp_path / "run")
    before = keras_vit.load(pretrained)
    assert model.image_size == (16, 16) and model.grid == (4, 4) and before.grid == (2, 2)
    images, labels = read_test_images(journey_data, "photos")
    logits = np.asarray(model(model.preprocess(list(images))))
    top1 = labels[np.arange(len(labels)), logits.argmax(-1)].mean()
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["top1"] == pytest.approx(top1, abs=1e-6)


def test_probe_and_few_shot_count_right_answers(pretrained, journey_data, capsys):
    dataset = f"folder:{journey_data / 'photos'}"
    assert main(["probe", str(pretrained), "--dataset", dataset, "--neighbors", "1"]) == 0
    printed = capsys.readouterr().out
    model = keras_vit.load(pretrained)
    train = [(file, file.parent.name) for file in sorted((journey_data / "photos" / "train").rglob("*.png"))]
    test = [(file, file.parent.name) for file in sorted((journey_data / "photos" / "test").rglob("*.png"))]
    features, queries = (
        np.asarray(model.features(model.preprocess([str(file) for file, _ in files]))) for files in (train, test)
    )
    features, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (features, queries))
    nearest = (queries @ features.T).argmax(axis=1)
    right = np.mean([train[index][1] == name for index, (_, name) in zip(nearest, test)])
    assert f"1 nearest neighbors: {right:.2%}" in printed
    assert main(["few-shot", str(pretrained), "--dataset", dataset, "--shots", "4", "--seeds", "0"]) == 0
    assert float(re.search(r"4 per class: ([\d.]+)%", capsys.readouterr().out)[1]) > 60  # chance: 33


def test_prepare_then_train_on_the_shards(journey_data, tmp_path, capsys):
    photos, shards = journey_data / "photos", tmp_path / "shards"
    assert main(["prepare", str(photos), "--output", str(shards)]) == 0
    options = ["--weights", "None", "--data.validation-split", "test", "--run.folder", str(tmp_path / "run")]
    assert main(["train", "digits-finetune", *options, "--data.dataset", f"tfrecord:{shards}", *TINY]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    # The photographs themselves, in the folder, are classified alike.
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--dataset", f"folder:{photos}", "--json"]) == 0
    evaluation = json.loads(capsys.readouterr().out)
    assert metrics["images"] == evaluation["images"] == 21
    assert metrics["top1"] == pytest.approx(evaluation["top1"], abs=1e-6)


def test_sweep_chooses_the_best_held_out_rate(journey_data, tmp_path):
    options = ["--weights", "None", "--data.dataset", f"folder:{journey_data / 'photos'}", *TINY]
    options += ["--run.folder", str(tmp_path), "--data.validation-split", "None"]
    plan = ["--learning-rates", "1e-6", "1e-2", "--seeds", "0", "--tuning-split", "train", "--held-out-split", "test"]
    assert main(["sweep", "digits-finetune", *recipe_options(options, "recipe."), *plan]) == 0
    result = json.loads((tmp_path / "sweep.json").read_text())
    rates = {rate: json.loads((tmp_path / f"rate-{rate}" / "metrics.json").read_text()) for rate in ("1e-06", "0.01")}
    assert result["held_out"] == {rate: metrics["top1"] for rate, metrics in rates.items()}
    assert result["learning_rate"] == 0.01
    test = json.loads((tmp_path / "seed-0" / "metrics.json").read_text())
    assert test["images"] == 21 and result["test"] == {"0": test["top1"]} and result["mean"] == test["top1"]


@pytest.mark.extended
def test_vtab_on_stand_ins(pretrained, journey_data, tmp_path, monkeypatch):
    """Two tasks whose recipes read the photographs; the archives of the real ones are not here."""
    from dataclasses import replace

    for name in ("vtab-pets", "vtab-dtd"):
        recipe = vtab.RECIPES[name]
        data = replace(
            recipe.data, dataset=f"folder:{journey_data / 'photos'}", train_split="train", test_split="test",
            validation_split=None, image_size=8, resize_size=9, batch_size=16,
        )  # fmt: skip
        optimizer = replace(recipe.optimizer, warmup_steps=1)
        monkeypatch.setitem(vtab.RECIPES, name, replace(recipe, data=data, optimizer=optimizer, total_steps=4))
    assert main(["vtab", str(pretrained), "--output", str(tmp_path), "--tasks", "pets", "dtd"]) == 0
    tasks = json.loads((tmp_path / "vtab.json").read_text())["tasks"]
    for name in ("pets", "dtd"):
        assert tasks[name] == json.loads((tmp_path / name / "metrics.json").read_text())["top1"]
        assert keras_vit.load(tmp_path / name).num_classes == 3
