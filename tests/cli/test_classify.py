"""`keras-vit classify`: the same answers from the package's model, a Keras file, a .tflite file and a SavedModel."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.export import write_saved_model, write_tflite
from keras_vit_cli import inputs
from keras_vit_cli.demo import report
from keras_vit_cli.evidence import evidence

CAT = Path(report.__file__).parent / "images" / "cat.jpg"


@pytest.fixture(scope="module")
def packaged():
    return keras_vit.load(inputs.OFFLINE)


@pytest.mark.slow
def test_photographs_without_a_network(monkeypatch, tmp_path, run_cli, packaged):
    def load(weights):
        if weights == inputs.DEFAULT:
            raise ConnectionError("no network")
        return packaged

    monkeypatch.setattr("keras_vit.load", load)
    shutil.copy(CAT, tmp_path / "a.jpg")
    status, output, errors = run_cli("classify", CAT, tmp_path, "--top", 2, "--json", tmp_path / "found.json")
    lines = output.splitlines()
    assert status == 0 and lines[:2] == [str(CAT), "   91.1%  cat"]
    assert lines[3] == str(tmp_path / "a.jpg") and len(lines) == 6
    assert "no network" in errors and "airplane, automobile, bird" in errors
    found = json.loads((tmp_path / "found.json").read_text())
    assert found[str(CAT)][0]["class"] == "cat" and abs(found[str(CAT)][0]["probability"] - 0.911) < 0.001


def test_unreadable_files_are_named_at_the_end(tmp_path, monkeypatch, run_cli):
    answers = SimpleNamespace(classify=lambda files, top: [[(file.stem, 0.5)] for file in files])
    monkeypatch.setattr("keras_vit.load", lambda _, **options: answers)
    files = [tmp_path / name for name in ("a.jpg", "text.jpg", "floats.tiff", "text.jpg", "d.jpg")]
    for file in (files[0], files[4]):
        shutil.copy(CAT, file)
    files[1].write_text("text")
    Image.new("F", (16, 16)).save(files[2])
    status, output, errors = run_cli("classify", *files, "--model", "hf:a/b", "--json", tmp_path / "found.json")
    assert status == 1 and output.splitlines() == [str(files[0]), "   50.0%  a", str(files[4]), "   50.0%  d"]
    first, second, last = errors.splitlines()
    assert str(files[1]) in first and "floats.tiff" in second and "above" in last
    assert len(json.loads((tmp_path / "found.json").read_text())) == 2

    def classify(paths, top):
        files[4].unlink(missing_ok=True)  # while the others are classified
        for path in paths:
            Image.open(path).close()
        return [[(path.stem, 0.5)] for path in paths]

    answers.classify = classify
    status, output, errors = run_cli(
        "classify", files[0], files[4], "--model", "hf:a/b", "--json", tmp_path / "left.json"
    )
    assert status == 1 and output.splitlines() == [str(files[0]), "   50.0%  a"] and str(files[4]) in errors
    assert list(json.loads((tmp_path / "left.json").read_text())) == [str(files[0])]
    monkeypatch.setattr("keras_vit.load", lambda _: pytest.fail("the model was loaded"))
    status, _, errors = run_cli("classify", *files[1:3])
    assert status == 1 and "above" not in errors


@pytest.mark.slow
def test_evidence_is_over_the_part_that_the_model_sees(tmp_path, packaged, monkeypatch, run_cli):
    preprocessing = {"image_size": 32, "resize": "shortest", "crop_fraction": 0.5}
    model = type(packaged).from_config({**packaged.get_config(), "preprocessing": preprocessing})
    model.set_weights(packaged.get_weights())
    monkeypatch.setattr("keras_vit.load", lambda _, **options: model)
    command = ["classify", CAT, "--model", "hf:a/b", "--attention", tmp_path / "new"]
    assert run_cli(*command)[0] == 0
    drawn, image = (np.asarray(Image.open(file)) for file in (tmp_path / "new" / "000-cat.png", CAT))
    changed = np.argwhere((drawn != image).any(axis=-1))
    (top, left), (bottom, right) = changed.min(axis=0), changed.max(axis=0)
    assert drawn.shape == image.shape == (300, 451, 3)
    assert 75 <= top and bottom < 225 and 150 <= left and right < 301 and bottom - top > 75  # the central 150 x 150
    small = evidence(model, image[:32, :40])  # enlarged by 8
    assert small.shape == (256, 320, 3) and (small[:8, :8] == image[0, 0]).all()
    narrow = np.zeros((3, 3000, 3), "uint8")
    assert evidence(model, narrow).shape == (3, 3000, 3) and evidence(model, narrow[:, :300]).shape == (9, 900, 3)
    status, _, errors = run_cli(*command)
    assert status == 1 and "another --attention" in errors


def test_models_around_ours_are_classified(toy, tmp_path, run_cli):
    """Three classes of a head of their own, named by the file beside the model; the largest bias is the answer."""
    vit, inputs = toy(depth=1, num_classes=0), keras.Input((40, 30, 3))
    head = keras.layers.Dense(3, kernel_initializer="zeros")
    model = keras.Model(inputs, head(vit(vit.preprocess(inputs))))
    head.bias.assign(np.log([0.2, 0.7, 0.1]))
    model.save(tmp_path / "whole.keras")
    (tmp_path / "whole.keras.labels.txt").write_text("ant\nbee\ncat\n")
    command = ["classify", CAT, "--model", tmp_path / "whole.keras"]
    status, output, errors = run_cli(*command, "--top", 1, "--attention", tmp_path / "evidence")
    assert status == 0, errors
    assert output.splitlines()[1].split() == ["70.0%", "bee"]
    assert len(list((tmp_path / "evidence").iterdir())) == 1
    assert run_cli(*command, "--preprocessing", "imagenet")[0] == 1


@pytest.mark.slow
def test_exported_models_have_the_same_answers(toy, tmp_path, run_cli):
    preprocessing = {"image_size": 16, "mean": 0.4 * np.ones(3)}
    model = toy(depth=1, num_classes=3, class_names=["ant", "bee", "cat"], preprocessing=preprocessing)
    model.head.kernel.assign(np.random.default_rng(0).normal(size=model.head.kernel.shape))
    model.save(tmp_path / "model.keras")
    files = [tmp_path / "model.keras", write_saved_model(model, tmp_path / "saved")]
    files += write_tflite(model, tmp_path, ["float32"]).values()
    results = [run_cli("classify", CAT, "--model", file) for file in files]
    assert results[0][:2] == results[1][:2] == results[2][:2] and results[0][0] == 0
    assert results[0][1].count("%") == 3 and "bee" in results[0][1]
    for file, (*_, note) in zip(files, results):
        assert note.startswith(f"Note: {file.name} ") and "mean=(0.4," in note


def test_rounded_probabilities_of_an_int8_file_are_printed_as_they_are(tmp_path, monkeypatch, run_cli):
    """1,000 small probabilities round to 0, so that they do not sum to 1."""
    rounded = np.array([[0.5, 0.25, 0.0]])
    monkeypatch.setattr("keras_vit_cli.classify.open_exported", lambda _: (lambda files: rounded, None))
    (tmp_path / "m.tflite").write_bytes(b"")
    status, output, _ = run_cli("classify", CAT, "--model", tmp_path / "m.tflite", "--top", 2)
    assert status == 0 and output.splitlines()[1:] == ["   50.0%  class 0", "   25.0%  class 1"]


def test_attention_of_a_resnet(tmp_path, run_cli, monkeypatch):
    model = keras_vit.BiT(stages=[1], width_factor=0.5, num_classes=2)
    monkeypatch.setattr("keras_vit.load", lambda _, **options: model)
    status, _, errors = run_cli("classify", CAT, "--model", "hf:a/b", "--attention", tmp_path / "new")
    assert status == 1 and "--attention" in errors and not (tmp_path / "new").exists()
