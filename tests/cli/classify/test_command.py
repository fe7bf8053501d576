"""`keras-vit classify`: the same answers from the package's model, a Keras file, a .tflite file and a SavedModel."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.export import write_saved_model, write_tflite
from keras_vit_cli import default_weights
from keras_vit_cli.classify.evidence import evidence
from keras_vit_cli.demo import photographs
from keras_vit_cli.main import main

CAT = Path(photographs.__file__).parent / "images" / "cat.jpg"


@pytest.fixture(scope="module")
def packaged():
    return keras_vit.load(default_weights.OFFLINE)


@pytest.mark.slow
def test_photographs_without_a_network(monkeypatch, tmp_path, capsys, packaged):
    def load(weights):
        if weights == default_weights.DEFAULT:
            raise ConnectionError("no network")
        return packaged

    monkeypatch.setattr("keras_vit.load", load)
    shutil.copy(CAT, tmp_path / "a.jpg")
    assert main(["classify", str(CAT), str(tmp_path), "--top", "2", "--json", str(tmp_path / "found.json")]) == 0
    output, errors = capsys.readouterr()
    lines = output.splitlines()
    assert lines[:2] == [str(CAT), "   91.1%  cat"] and lines[3] == str(tmp_path / "a.jpg") and len(lines) == 6
    assert "cannot be downloaded: no network" in errors and "knows only: airplane, automobile, bird" in errors
    found = json.loads((tmp_path / "found.json").read_text())
    assert found[str(CAT)][0]["class"] == "cat" and abs(found[str(CAT)][0]["probability"] - 0.911) < 0.001


def test_unreadable_files_are_named_at_the_end(tmp_path, monkeypatch, capsys):
    answers = SimpleNamespace(classify=lambda files, top: [[(file.stem, 0.5)] for file in files])
    monkeypatch.setattr("keras_vit.load", lambda _, **options: answers)
    files = [tmp_path / name for name in ("a.jpg", "text.jpg", "floats.tiff", "text.jpg", "d.jpg")]
    for file in (files[0], files[4]):
        shutil.copy(CAT, file)
    files[1].write_text("text")
    Image.new("F", (16, 16)).save(files[2])
    arguments = ["classify", *map(str, files), "--model", "hf:a/b", "--json", str(tmp_path / "found.json")]
    assert main(arguments) == 1
    output, errors = capsys.readouterr()
    assert output.splitlines() == [str(files[0]), "   50.0%  a", str(files[4]), "   50.0%  d"]
    assert errors.startswith(f"keras-vit: {files[1]} cannot be read as an image: cannot identify image file")
    assert "floats.tiff cannot be read as an image: the pixels are floats" in errors.splitlines()[1]
    assert errors.splitlines()[2:] == ["All others are classified above."]
    assert len(json.loads((tmp_path / "found.json").read_text())) == 2
    monkeypatch.setattr("keras_vit.load", lambda _: pytest.fail("the model was loaded"))
    assert main(["classify", str(files[1]), str(files[2])]) == 1
    assert "classified above" not in capsys.readouterr().err


@pytest.mark.slow
def test_evidence_is_over_the_part_that_the_model_sees(tmp_path, packaged, monkeypatch, capsys):
    model = type(packaged).from_config(
        {**packaged.get_config(), "preprocessing": {"image_size": 32, "resize": "shortest", "crop_fraction": 0.5}}
    )
    model.set_weights(packaged.get_weights())
    monkeypatch.setattr("keras_vit.load", lambda _, **options: model)
    assert main(["classify", str(CAT), "--model", "hf:a/b", "--attention", str(tmp_path / "new")]) == 0
    drawn, image = (np.asarray(Image.open(file)) for file in (tmp_path / "new" / "000-cat.png", CAT))
    changed = np.argwhere((drawn != image).any(axis=-1))
    (top, left), (bottom, right) = changed.min(axis=0), changed.max(axis=0)
    assert drawn.shape == image.shape == (300, 451, 3)
    assert 75 <= top and bottom < 225 and 150 <= left and right < 301 and bottom - top > 75  # the central 150 x 150
    small = evidence(model, image[:32, :40])  # enlarged by 8
    assert small.shape == (256, 320, 3) and (small[:8, :8] == image[0, 0]).all()
    narrow = np.zeros((3, 3000, 3), "uint8")
    assert evidence(model, narrow).shape == (3, 3000, 3) and evidence(model, narrow[:, :300]).shape == (9, 900, 3)
    assert main(["classify", str(CAT), "--model", "hf:a/b", "--attention", str(tmp_path / "new")]) == 1
    assert "is not empty; choose another --attention." in capsys.readouterr().err


@pytest.mark.slow
def test_exported_models_have_the_same_answers(toy, tmp_path, capsys):
    model = toy(
        num_classes=3, class_names=["ant", "bee", "cat"], preprocessing={"image_size": 16, "mean": 0.4 * np.ones(3)}
    )
    model.head.kernel.assign(np.random.default_rng(0).normal(size=model.head.kernel.shape))
    model.save(tmp_path / "model.keras")
    files = [tmp_path / "model.keras", write_saved_model(model, tmp_path / "saved")]
    files += write_tflite(model, tmp_path, ["float32"]).values()
    answers = []
    for file in files:
        assert main(["classify", str(CAT), "--model", str(file)]) == 0
        printed = capsys.readouterr()
        answers.append(printed.out)
        assert printed.err.startswith(
            f"Note: {file.name} does not state how its pixels are scaled. Assumed: mean=(0.4,"
        )
    assert answers[0] == answers[1] == answers[2] and answers[0].count("%") == 3 and "bee" in answers[0]


def test_rounded_probabilities_of_an_int8_file_are_printed_as_they_are(tmp_path, monkeypatch, capsys):
    """1,000 small probabilities round to 0, so that they do not sum to 1."""
    rounded = SimpleNamespace(probabilities=lambda files: np.array([[0.5, 0.25, 0.0]] * len(files)), names=None)
    monkeypatch.setattr("keras_vit_cli.classify.command.open_exported", lambda _: rounded)
    (tmp_path / "m.tflite").write_bytes(b"")
    assert main(["classify", str(CAT), "--model", str(tmp_path / "m.tflite"), "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["   50.0%  class 0", "   25.0%  class 1"]


@pytest.mark.parametrize(
    "options,message",
    [
        ([], "Expected images: keras-vit classify cat.jpg"),
        (["nofile.jpg"], "There is no image nofile.jpg"),
        ([str(CAT), "--top", "0"], "--top must be at least 1. Received: 0"),
        ([str(CAT), "--model", "m.tflite", "--attention", "out"], "--attention requires gradients"),
        ([str(CAT), "--model", "m.tflite"], "m.tflite"),
        ([str(CAT), "--model", "m.tflite", "--preprocessing", "half"], "m.tflite has its own preprocessing. Export"),
        ([str(CAT), "--std", "1", "1", "1"], "The default model has its own preprocessing. Omit it, or pass --model"),
        ([str(CAT), "--json", "/no/such/folder/x.json"], "--json requires a file in an existing folder"),
    ],
)
def test_mistakes(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["classify", *options]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("keras-vit: ") and message in errors and errors.count("\n") == 1


def test_attention_of_a_resnet(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "keras_vit.load", lambda _, **options: keras_vit.BiT(stages=[1], width_factor=0.5, num_classes=2)
    )
    assert main(["classify", str(CAT), "--model", "hf:a/b", "--attention", str(tmp_path / "new")]) == 1
    assert "--attention is not defined for" in capsys.readouterr().err and not (tmp_path / "new").exists()
