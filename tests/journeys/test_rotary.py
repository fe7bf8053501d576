"""DINOv3: probe, inspection, training at another size, a phone; and masked patches with rotary positions."""

import csv
import json
import re

import numpy as np
import pytest
from goldens import foundation_folder

import keras_vit
from journeys.training import ARCHITECTURE, SETTINGS, read_test_images
from keras_vit.export import write_tflite
from keras_vit.export.audit import audit
from keras_vit.export.benchmark import compare
from keras_vit.recipes.configs import small_folder
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dinov3(tmp_path_factory):
    """A folder as transformers publishes it."""
    return foundation_folder(tmp_path_factory.mktemp("dinov3"), "hf_dinov3")


def test_probe_counts_nearest_neighbors(dinov3, journey_data, capsys):
    assert main(["probe", str(dinov3), "--dataset", f"folder:{journey_data / 'photos'}", "--neighbors", "1"]) == 0
    printed = capsys.readouterr().out
    model, files = keras_vit.load(dinov3), {}
    for split in ("train", "test"):
        files[split] = sorted((journey_data / "photos" / split).rglob("*.png"))
    train, test = (np.asarray(model.features(model.preprocess([str(f) for f in files[s]]))) for s in files)
    train, test = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test))
    nearest = np.argmax(test @ train.T, axis=1)
    classes = [[file.parent.name for file in files[split]] for split in ("train", "test")]
    right = np.mean([classes[0][neighbor] == name for neighbor, name in zip(nearest, classes[1], strict=True)])
    assert f"{100 * right:.1f}" in printed


def test_trained_at_another_size(dinov3, journey_data, tmp_path):
    photos = journey_data / "photos"
    page = tmp_path / "report.html"
    assert main(["inspect", str(dinov3), "--images", str(photos / "test" / "red"), "--output", str(page)]) == 0
    assert re.search(r'"positions": ?null', page.read_text())  # no table to show
    options = ["--weights", str(dinov3), "--data.dataset", f"folder:{photos}", "--data.validation-split", "test"]
    larger = [*SETTINGS, "--data.image-size", "35", "--total-steps", "8", "--run.folder", str(tmp_path / "run")]
    assert main(["train", "digits-finetune", *options, *larger]) == 0
    model = keras_vit.load(tmp_path / "run")
    assert model.grid == (5, 5) and model.config.position_embedding == "rotary"
    images, labels = read_test_images(journey_data, "photos")
    logits = np.asarray(model(model.preprocess(list(images))))
    top1 = labels[np.arange(len(labels)), logits.argmax(-1)].mean()
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["top1"] == pytest.approx(top1, abs=1e-6)


@pytest.mark.extended
def test_from_photos_to_a_file(dinov3, journey_data, tmp_path, monkeypatch):
    monkeypatch.setattr(small_folder, "MOST_EPOCHS", 2)
    run = tmp_path / "run"
    assert main(["finetune", str(journey_data / "photos"), "--weights", str(dinov3), "--output", str(run)]) == 0
    assert keras_vit.load(run).config.rotary_theta == 100 and list((run / "exported").glob("*.tflite"))


def test_files_are_not_split(dinov3, tmp_path):
    files = write_tflite(keras_vit.load(dinov3), tmp_path, ("float32", "dynamic-int8"), signatures=("embed",))
    assert [timing.num_partitions for timing in compare([*files.values()], num_runs=1, warmup_runs=1)] == [1, 1]
    assert not audit(files["float32"], ["gpu"]).fails("gpu")


def test_masked_patches(journey_data, tmp_path):
    options = ["--data.dataset", f"folder:{journey_data / 'photos'}", *ARCHITECTURE, *SETTINGS, "--total-steps", "8"]
    rotary = ["--architecture.position-embedding", "rotary", "--run.folder", str(tmp_path / "run")]
    assert main(["train", "digits-masked-patch", *options, *rotary]) == 0
    log = list(csv.DictReader((tmp_path / "run" / "log.csv").read_text().splitlines()))
    assert float(log[-1]["loss"]) < float(log[0]["loss"])
    assert keras_vit.load(tmp_path / "run").config.position_embedding == "rotary"
