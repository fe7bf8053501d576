"""Output of `keras-vit evaluate`. Metrics: tests/recipes/evaluation; other errors: test_describe_convert.py."""

import json

import numpy as np
import pytest

from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.recipe import Data
from keras_vit_cli.main import main


@pytest.fixture
def run(capsys):
    """Runs `evaluate`; returns its exit status, lines and errors."""

    def run_command(*arguments):
        capsys.readouterr()  # printed when the data was prepared
        status = main(["evaluate", *map(str, arguments)])
        output, errors = capsys.readouterr()
        return status, output.splitlines(), errors

    return run_command


@pytest.fixture
def digits(data_dir):
    return "--dataset", "digits", "--data-dir", data_dir, "--split", "test[:45]", "--batch-size", "20"


@pytest.fixture
def model(trained_toy, tmp_path):
    model = trained_toy(image_size=8, patch_size=2, num_classes=10)
    model.save(tmp_path / "x.keras")
    return model


def test_everything_is_printed_and_written(run, digits, model, data_dir, tmp_path):
    dataset = open_dataset(Data(dataset="digits", data_dir=data_dir))
    expected = evaluate_classifier(model, dataset, "test[:45]", batch_size=20)
    summary = expected.summary
    target = tmp_path / "found.json"
    status, lines, _ = run(tmp_path / "x.keras", *digits, "--per-class", "--json", target)
    assert status == 0 and lines[0].startswith("45 images of digits (test[:45]), Preprocessing(")
    assert lines[1:5] == [
        f"top-1 {summary['top1']:.2%}",
        f"top-5 {summary['top5']:.2%}",
        f"calibration error {summary['calibration_error']:.2%}",
        f"negative log-likelihood {summary['negative_log_likelihood']:.4f}",
    ]
    assert lines[6].split() == "class images accuracy most confused with".split()
    assert [line.split()[:3] for line in lines[7:]] == [
        [row["class"], str(row["images"]), f"{row['accuracy']:.2%}"] for row in expected.per_class
    ]
    found = json.loads(target.read_text())
    assert found["dataset"] == "digits" and found["preprocessing"]["image_size"] == [8, 8]
    assert {name: found[name] for name in summary} == pytest.approx(summary, rel=1e-4)
    assert found["classes"] == expected.per_class and len(found["reliability"]) == 15
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.json", "x.keras"]


def test_objectnet_mapping_is_passed_on(run, digits, model, tmp_path):
    status, _, errors = run(tmp_path / "x.keras", *digits, "--objectnet-mapping", tmp_path / "nowhere")
    assert status == 1 and "nowhere" in errors and "folder_to_objectnet_label.json" in errors


def test_images_without_a_label_are_counted(run, digits, model, tmp_path, monkeypatch):
    image = np.zeros((8, 8, 3), "uint8")
    batches = [([image, image], np.eye(10)[:2] * [[1], [0]])]  # the second label has no class
    monkeypatch.setattr("keras_vit.recipes.evaluation.classification.decoded_images", lambda *_: iter(batches))
    status, lines, _ = run(tmp_path / "x.keras", *digits)
    assert status == 0 and lines[0].startswith("2 images of") and lines[1] == "1 of them have a label and count"


def test_json_file_that_cannot_be_written(run, digits, model, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.load", lambda _: pytest.fail("the model was loaded first"))
    status, lines, errors = run(tmp_path / "x.keras", *digits, "--json", tmp_path / "no" / "x.json")
    assert status == 1 and not lines and "--json" in errors
    monkeypatch.undo()
    target = tmp_path / "found.json"
    target.write_text("old")
    monkeypatch.setattr("tensorflow.io.gfile.rename", fail)
    status, _, errors = run(tmp_path / "x.keras", *digits, "--json", target)
    assert status == 1 and "disk is full" in errors
    assert target.read_text() == "old" and sorted(path.name for path in tmp_path.iterdir()) == ["found.json", "x.keras"]


def fail(*_, **__):
    raise OSError("the disk is full")
