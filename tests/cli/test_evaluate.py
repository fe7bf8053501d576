"""`keras-vit evaluate` beyond accuracy: tables, files, several right answers. Its basics are in test_checkpoints.py."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.cli.main import main
from keras_vit.labels import imagenet_labels
from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.evaluation.classification import Evaluation
from keras_vit.recipes.recipe import Data


@pytest.fixture
def run(capsys):
    """Runs `evaluate`; returns its exit status, lines and errors."""

    def run_command(*arguments):
        capsys.readouterr()  # of preparing the data
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


def by_hand(model, data_dir):
    dataset = open_dataset(Data(dataset="digits", data_dir=data_dir))
    evaluation = Evaluation(10)
    for images, labels in decoded_images(dataset, "test[:45]", 45):
        evaluation.update(model(model.preprocess(images)), labels)
    return evaluation


def test_everything_is_printed_and_written(run, digits, model, data_dir, tmp_path):
    expected = by_hand(model, data_dir)
    summary, rows = expected.summary(), expected.per_class("0123456789")
    target = tmp_path / "found.json"
    status, lines, _ = run(tmp_path / "x.keras", *digits, "--per-class", "--json", target)
    assert status == 0 and lines[0].startswith("45 images of digits (test[:45]), Preprocessing(")
    assert lines[1:5] == [
        f"top-1 {summary['top1']:.2%}",
        f"top-5 {summary['top5']:.2%}",
        f"calibration error {summary['calibration_error']:.2%}",
        f"negative log-likelihood {summary['negative_log_likelihood']:.4f}",
    ]
    assert lines[6].split() == "class images accuracy most often taken for".split()
    assert [line.split()[:3] for line in lines[7:]] == [
        [row["class"], str(row["images"]), f"{row['accuracy']:.2%}"] for row in rows
    ]
    found = json.loads(target.read_text())
    assert found["dataset"] == "digits" and found["preprocessing"]["image_size"] == [8, 8]
    assert {name: found[name] for name in summary} == pytest.approx(summary, rel=1e-4)
    assert found["classes"] == rows and len(found["reliability"]) == 15
    assert sum(row["images"] for row in found["reliability"]) == 45
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.json", "x.keras"]


def test_nothing_is_compiled_for_a_tpu_that_the_model_is_not_on(run, digits, model, tmp_path, monkeypatch):
    compiled, predict = [], keras.Model.predict_on_batch

    def on_batch(self, x):
        compiled.append(self.jit_compile)
        self.jit_compile = False
        return predict(self, x)

    chip = tf.config.PhysicalDevice("/physical_device:TPU:0", "TPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [chip] if kind in (None, "TPU") else [])
    monkeypatch.setattr(keras.Model, "predict_on_batch", on_batch)
    assert run(tmp_path / "x.keras", *digits)[0] == 0
    assert compiled == [False] * 3


def test_a_file_that_cannot_be_written(run, digits, model, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.load", lambda _: pytest.fail("the model was loaded first"))
    status, lines, errors = run(tmp_path / "x.keras", *digits, "--json", tmp_path / "no" / "x.json")
    assert status == 1 and not lines and "is in none that exists" in errors
    monkeypatch.undo()
    target = tmp_path / "found.json"
    target.write_text("old")
    monkeypatch.setattr("tensorflow.io.gfile.rename", fail)
    status, _, errors = run(tmp_path / "x.keras", *digits, "--json", target)
    assert status == 1 and "disk is full" in errors
    assert target.read_text() == "old" and sorted(path.name for path in tmp_path.iterdir()) == ["found.json", "x.keras"]


def fail(*_, **__):
    raise OSError("the disk is full")


def test_several_right_answers(run, digits, model, data_dir, tmp_path, monkeypatch):
    """As the labels of imagenet2012_real: zeros and ones."""
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (8, 8, 3), dtype="uint8") for _ in range(30)]
    labels = (random.random((30, 10)) < 0.2).astype("float32")
    batches = [(images[:20], labels[:20]), (images[20:], labels[20:])]
    monkeypatch.setattr("keras_vit.recipes.data.decoded_images", lambda *_: iter(batches))
    status, lines, _ = run(tmp_path / "x.keras", *digits)
    counted = labels.any(axis=1)
    taken = np.argmax(model(model.preprocess(images)), axis=1)
    top1 = np.mean(labels[counted, taken[counted]])
    assert status == 0 and lines[0].startswith("30 images of")
    assert lines[1] == f"{counted.sum()} of them have a label and count" and counted.sum() < 30
    assert lines[2] == f"top-1 {top1:.2%}"


def test_objectnet(run, trained_toy, tmp_path):
    """Half of the class folders overlap; the model sees images without their border."""
    release = tmp_path / "objectnet-1.0"
    (release / "mappings").mkdir(parents=True)
    folders = {"banana": "Banana", "alarm_clock": "Alarm clock", "air_freshener": "Air freshener", "tape": "Tape"}
    classes = {"Banana": "banana", "Alarm clock": "analog clock; digital clock"}
    (release / "mappings" / "folder_to_objectnet_label.json").write_text(json.dumps(folders))
    (release / "mappings" / "objectnet_to_imagenet_1k.json").write_text(json.dumps(classes))
    random, inner, folder_of = np.random.default_rng(0), [], []
    for folder in sorted(folders):
        for number in range(5):
            image = random.integers(0, 256, (20, 24, 3), dtype="uint8")
            place = release / "images" / folder
            place.mkdir(parents=True, exist_ok=True)
            border = np.tile(np.array([255, 0, 0], "uint8"), (24, 28, 1))
            border[2:-2, 2:-2] = image
            Image.fromarray(border).save(place / f"{number}.png")
            if folders[folder] in classes:
                inner.append(image)
                folder_of.append(folder)
    model = trained_toy(num_classes=1000)
    names = [words for _, words in imagenet_labels()]
    taken = np.argmax(model(model.preprocess(inner)), axis=1)
    most = np.bincount(taken).argmax()  # make one folder's answers the class that the toy likes best
    classes["Banana"] = names[most]
    (release / "mappings" / "objectnet_to_imagenet_1k.json").write_text(json.dumps(classes))
    model.save(tmp_path / "x.keras")
    options = ("--dataset", f"folder:{release}", "--split", "images", "--batch-size", 4)
    status, lines, _ = run(
        tmp_path / "x.keras", *options, "--objectnet-mapping", release / "mappings", "--json", tmp_path / "found.json"
    )
    right = {"banana": {names[most]}, "alarm_clock": {"analog clock", "digital clock"}}
    top1 = np.mean([names[number] in right[folder] for number, folder in zip(taken, folder_of)])
    assert status == 0 and lines[0].startswith("10 images of") and 0 < top1 < 1
    assert lines[1] == f"top-1 {top1:.2%}"
    found = json.loads((tmp_path / "found.json").read_text())
    assert {row["class"]: row["images"] for row in found["classes"]} == {
        "analog clock": 5,
        "digital clock": 5,
        names[most]: 5,
    }
    trained_toy(num_classes=4).save(tmp_path / "small.keras")
    _, _, errors = run(tmp_path / "small.keras", *options, "--objectnet-mapping", release / "mappings")
    assert "has 1000 classes, but the model has 4" in errors
