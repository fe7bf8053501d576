"""`keras-vit finetune --folds`: photographs of which each is tested once, interrupted runs, and a fold that fails."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import balanced_accuracy_score

import keras_vit
from keras_vit.recipes.configs import small_folder
from keras_vit_cli.commands.report import evaluation
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
PATIENTS, VIEWS = 12, 2
SHADES = {"dark": 0, "light": 120}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two views of each patient; one image of "dark" is in "light"."""
    folder = tmp_path_factory.mktemp("folds") / "photos"
    random = np.random.default_rng(0)
    for name, low in SHADES.items():
        (folder / name).mkdir(parents=True)
        for patient in range(PATIENTS):
            for view in range(VIEWS):
                pixels = random.integers(low, low + 100, (20, 20, 3), "uint8")
                Image.fromarray(pixels).save(folder / name / f"{name}{patient}-{view}.png")
    shutil.move(folder / "dark" / "dark3-1.png", folder / "light")
    return folder


@pytest.fixture
def finetune(photos, journey_data, tmp_path, monkeypatch):
    """Runs the command in a folder of its own; returns its exit status."""
    monkeypatch.chdir(photos.parent)
    monkeypatch.setattr(small_folder, "MOST_EPOCHS", 3)
    weights = str(journey_data / "teacher.keras")
    return lambda output, *options: main(
        ["finetune", "photos", "--weights", weights, "--output", str(output), "--folds", "3", *options]
    )


def predictions(folder) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_image_is_tested_once_by_a_model_that_saw_no_image_of_its_group(finetune, photos, tmp_path, capsys):
    run = tmp_path / "run"
    assert finetune(run, "--group", r"([a-z]+\d+)-") == 0
    out = capsys.readouterr().out
    rows = predictions(run)
    files = {path.relative_to(photos.parent).as_posix() for path in photos.rglob("*.png")}
    assert len(rows) == len(files) == 48 and {row["file"] for row in rows} == files
    tested = {}
    for number in (1, 2, 3):
        fold = run / "folds" / f"fold{number}"
        recipe = json.loads((fold / "recipe.json").read_text())
        assert f"fold{number}" not in recipe["data"]["train_split"] and recipe["data"]["train_split"].count("fold") == 2
        of_fold = predictions(fold)
        tested[number] = {row["group"] for row in of_fold}
        right = sum(row["label"] == row["prediction"] for row in of_fold)
        assert right / len(of_fold) == pytest.approx(json.loads((fold / "metrics.json").read_text())["top1"])
        assert not list(fold.glob("*.keras")) and not list(fold.glob("step-*"))
    assert not tested[1] & tested[2] and not tested[1] & tested[3] and not tested[2] & tested[3]
    labels, predicted = ([row[name] for row in rows] for name in ("label", "prediction"))
    right = sum(np.array(labels) == np.array(predicted))
    assert f"{right} of 48 images in 24 groups in folds" in out
    assert (run / "exported" / "model-dynamic-int8.tflite").is_file() and "48 images" in (
        run / "report.html"
    ).read_text()
    # The final model saw all images, and says whose the accuracy is.
    recipe = json.loads((run / "recipe.json").read_text())
    assert recipe["data"]["test_split"] is None and recipe["data"]["train_split"] == "fold1+fold2+fold3"
    card = (run / "model_card.md").read_text()
    assert f"| top1 | {right / 48:.4g}" in card and "was trained without it" in card
    assert keras_vit.load(run / "model.keras").class_names == ("dark", "light")
    assert balanced_accuracy_score(labels, predicted) > 0.8
    with (run / "mislabeled.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["file"] == "photos/light/dark3-1.png"
    doubtful = (run / "report.html").read_text().partition("<h2>Possibly mislabeled</h2>")[2]
    assert doubtful.index("dark3-1") < doubtful.index("</figcaption>")
    # A new image changes nothing in the finished run.
    Image.new("RGB", (8, 8)).save(photos / "dark" / "new.png")
    assert finetune(run) == 0 and len(predictions(run)) == 48
    (photos / "dark" / "new.png").unlink()
    assert finetune(run, "--folds", "4") == 1 and "run with --folds 3" in capsys.readouterr().err


def test_interrupted_and_failing_folds_end_as_uninterrupted_ones(finetune, tmp_path, monkeypatch, capsys):
    """Interrupted in a training and between training and test; then fold 2 fails, and is tried again."""
    assert finetune(tmp_path / "whole") == 0
    run, predict, calls = tmp_path / "run", evaluation.predict, []

    def failing(classifier, data, table, dataset):
        calls.append(data.test_split)
        if len(calls) == 1:
            raise KeyboardInterrupt
        if data.test_split == "fold2" and len(calls) < 6:
            raise ValueError("no memory")
        return predict(classifier, data, table, dataset)

    monkeypatch.setattr(evaluation, "predict", failing)
    assert finetune(run) == 130
    assert not list(run.rglob("predictions.csv")) and (run / "folds" / "fold1" / "model.keras").is_file()
    run = run.rename(tmp_path / "moved")
    Image.new("RGB", (8, 8)).save("photos/dark/new.png")  # is in no fold
    capsys.readouterr()
    assert finetune(run) == 1
    errors = capsys.readouterr().err
    assert "fold2 failed: no memory" in errors and "1 of 3 folds failed" in errors
    assert (run / "model.keras").is_file() and 0 < len(predictions(run)) < 48
    calls += [""] * 6
    assert finetune(run) == 0
    Path("photos/dark/new.png").unlink()
    assert (run / "predictions.csv").read_bytes() == (tmp_path / "whole" / "predictions.csv").read_bytes()
    weights = [keras_vit.load(folder / "model.keras").get_weights() for folder in (run, tmp_path / "whole")]
    assert all(np.array_equal(*arrays) for arrays in zip(*weights))
    assert Path(run / "report.html").stat().st_size > 10_000
