"""`keras-vit classify`: the same answers from a Keras model, and from its .tflite, .onnx and SavedModel files."""

import ast
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image
from randomize import randomize
from scenes import scene

import keras_vit
from keras_vit.export import write_onnx, write_saved_model, write_tflite
from keras_vit.export.exported.opening import ExportedClassifier, open_exported
from keras_vit.images.preprocessing import Preprocessing
from keras_vit_cli import inputs
from keras_vit_cli.commands.demo import report
from keras_vit_cli.evidence import evidence

CAT = Path(report.__file__).parent / "images" / "cat.jpg"
SIZES = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}


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
    status, output, errors = run_cli("classify", CAT, tmp_path, "--top", 2)
    lines = output.splitlines()
    assert status == 0 and lines[:2] == [str(CAT), "   91.1%  cat"]
    assert lines[3] == str(tmp_path / "a.jpg") and len(lines) == 6
    assert "no network" in errors and "airplane, automobile, bird" in errors
    found = json.loads(run_cli("classify", CAT, "--json")[1])
    assert found[str(CAT)][0]["class"] == "cat" and abs(found[str(CAT)][0]["probability"] - 0.911) < 0.001


def test_unreadable_files_are_named_at_the_end(tmp_path, monkeypatch, run_cli):
    answers = SimpleNamespace(
        classify=lambda files, top: [[(file.stem, 0.5)] for file in files],
        preprocessing=Preprocessing(image_size=(4, 4)),
    )
    monkeypatch.setattr("keras_vit.load", lambda _, **options: answers)
    files = [tmp_path / name for name in ("a.jpg", "text.jpg", "floats.tiff", "text.jpg", "d.jpg")]
    for file in (files[0], files[4]):
        shutil.copy(CAT, file)
    files[1].write_text("text")
    Image.new("F", (16, 16)).save(files[2])
    status, output, errors = run_cli("classify", *files, "--model", "hf:a/b")
    assert status == 1 and output.splitlines() == [str(files[0]), "   50.0%  a", str(files[4]), "   50.0%  d"]
    first, second, last = errors.splitlines()
    assert str(files[1]) in first and "floats.tiff" in second and "above" in last
    assert len(json.loads(run_cli("classify", *files, "--model", "hf:a/b", "--json")[1])) == 2

    def classify(paths, top):
        files[4].unlink(missing_ok=True)  # while the others are classified
        for path in paths:
            Image.open(path).close()
        return [[(path.stem, 0.5)] for path in paths]

    answers.classify = classify
    status, output, errors = run_cli("classify", files[0], files[4], "--model", "hf:a/b", "--json")
    assert status == 1 and list(json.loads(output)) == [str(files[0])] and str(files[4]) in errors
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


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model as .keras, SavedModel and .tflite."""
    keras.utils.set_random_seed(1)
    fields = {"image_size": 16, "mean": 0.4 * np.ones(3), "interpolation": "bicubic", "antialias": True}
    names = ["ant", "bee", "cat"]
    model = keras_vit.VisionTransformer(**SIZES, num_classes=3, preprocessing=fields, class_names=names)
    model.head.kernel.assign(np.random.default_rng(0).normal(size=model.head.kernel.shape))
    folder = tmp_path_factory.mktemp("exported")
    model.save(folder / "model.keras")
    files = [folder / "model.keras", write_saved_model(model, folder / "saved")]
    return [*files, *write_tflite(model, folder, ["float32"]).values()]


@pytest.fixture(scope="module")
def onnx_file(exported):
    return write_onnx(keras_vit.load(exported[0]), exported[0].with_suffix(".onnx"))


def check_answers(files, run_cli):
    results = [run_cli("classify", CAT, "--model", file, "--json") for file in files]
    rows = [json.loads(output)[str(CAT)] for _, output, _ in results]
    names, probabilities = ([[row[key] for row in found] for found in rows] for key in ("class", "probability"))
    assert not any(status for status, *_ in results) and names == [names[0]] * len(files) and "bee" in names[0]
    np.testing.assert_allclose(probabilities, [probabilities[0]] * len(files), atol=1e-4)
    for file, (*_, note) in zip(files, results):
        assert note.startswith(f"Note: {file.name} ") and "mean=(0.4," in note


def check_runs_without_keras(file):
    code = "import sys; from keras_vit_cli.main import main; lines = [line.split('|') for line in sys.argv[1:]]; "
    code += "assert not any(main(line) for line in lines); print({*sys.modules})"
    arguments = [sys.executable, "-c", code, f"classify|{CAT}|--model|{file}", f"describe|{file}"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "jax"} & ast.literal_eval(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_exported_models_have_the_same_answers(exported, run_cli):
    check_answers(exported, run_cli)


@pytest.mark.slow
def test_tflite_files_are_classified_without_keras(exported):
    check_runs_without_keras(exported[2])


@pytest.mark.extended
def test_exported_models_are_described_and_evaluated(exported, onnx_file, tmp_path, run_cli):
    check_answers([exported[0], onnx_file], run_cli)
    check_runs_without_keras(onnx_file)
    preprocessing = keras_vit.load(exported[0]).preprocessing.get_config()
    for i in range(12):
        folder = tmp_path / "images" / "test" / ("ant", "bee", "cat")[i % 3]
        folder.mkdir(parents=True, exist_ok=True)
        scene(i, (20 + i, 31)).save(folder / f"{i}.png")
    found = []
    for file in [*exported, onnx_file]:
        options = [] if file is exported[0] else ["--reference", exported[0]]
        dataset = f"folder:{tmp_path / 'images'}"
        found.append(json.loads(run_cli("evaluate", file, "--dataset", dataset, "--json", *options)[1]))
        status, output, _ = run_cli("describe", file, "--json")
        described = json.loads(output)
        assert status == 0 and described["class_names"] == ["ant", "bee", "cat"]
        stated = {name: described["preprocessing"][name] for name in ("mean", "interpolation", "antialias")}
        assert stated == {"mean": list(preprocessing["mean"]), "interpolation": "bicubic", "antialias": True}
        assert "bee" in run_cli("describe", file)[1]
    names = ("top1", "images", "classes")
    for evaluated in found[1:]:
        assert evaluated["agreement"] == 1 and [evaluated[name] for name in names] == [found[0][name] for name in names]
        assert evaluated["negative_log_likelihood"] == pytest.approx(found[0]["negative_log_likelihood"], rel=1e-4)


@pytest.mark.extended
@pytest.mark.parametrize("multi_label", [False, True])
def test_exported_logits_and_activations(multi_label, tmp_path):
    model = randomize(keras_vit.VisionTransformer(**SIZES, num_classes=3, multi_label=multi_label), 0.2, seed=1)
    images = [np.asarray(scene(i, (16, 16))) for i in range(20)]
    expected = model.predict(model.preprocess(np.stack(images)), verbose=0)
    files = write_tflite(model, tmp_path, ["float32", "int8"], np.stack(images))
    for file in (*files.values(), write_saved_model(model, tmp_path / "saved"), write_onnx(model, tmp_path / "m.onnx")):
        opened = open_exported(file)
        assert opened.activation == ("sigmoid" if multi_label else "softmax") and opened.multi_label == multi_label
        logits = opened.logits(images)
        if not multi_label:
            logits += (expected - logits).mean(axis=-1, keepdims=True)
        np.testing.assert_allclose(logits, expected, atol=0.5 if "int8" in file.name else 1e-3)


def test_rounded_probabilities_of_an_int8_file_are_printed_as_they_are(tmp_path, monkeypatch, run_cli):
    """1,000 small probabilities round to 0, so that they do not sum to 1."""
    rounded = np.array([[0.5, 0.25, 0.0]])
    opened = ExportedClassifier("m", lambda pixels: rounded, keras_vit.Preprocessing(16), None, 3, "softmax")
    monkeypatch.setattr("keras_vit.export.exported.opening.open_exported", lambda _: opened)
    (tmp_path / "m.tflite").write_bytes(b"")
    status, output, _ = run_cli("classify", CAT, "--model", tmp_path / "m.tflite", "--top", 2)
    assert status == 0 and output.splitlines()[1:] == ["   50.0%  class 0", "   25.0%  class 1"]


@pytest.mark.slow
def test_a_table_of_all_probabilities(tmp_path, run_cli, packaged):
    """Of a Keras model, one around it and a .tflite file, against `keras_vit.classify`."""
    (tmp_path / "photos").mkdir()
    files = [str(tmp_path / "photos" / f"{number}.png") for number in range(3)]
    for number, file in enumerate(files):
        scene(number, (40, 30 + number)).save(file)
    (tmp_path / "photos" / "text.png").write_text("no image")
    keras.Sequential([packaged, keras.layers.Softmax()]).save(tmp_path / "outer.keras")
    write_tflite(packaged, tmp_path, ["float32"])
    answers = [dict(best) for best in packaged.classify(files, top=10)]
    for model in (inputs.OFFLINE, tmp_path / "outer.keras", tmp_path / "model-float32.tflite"):
        status, output, _ = run_cli("classify", tmp_path / "photos", "--model", model, "--output", tmp_path / "x.csv")
        rows = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
        assert status == 0 and [row.pop("file") for row in rows] == files and files[2] in output
        for row, answer in zip(rows, answers, strict=True):
            assert row.pop("label") == "" and row.pop("prediction") == max(answer, key=answer.get)
            assert {name: float(value) for name, value in row.items()} == pytest.approx(answer, abs=2e-5)
    for wrong in (tmp_path / "no" / "x.csv", f"{tmp_path}/folder/", tmp_path / "photos"):
        assert run_cli("classify", CAT, "--output", wrong)[0] == 1 and not (tmp_path / "folder").exists()
    named = tmp_path / "photos" / "text.png", files[0]  # the table is written before the error about the first
    assert run_cli("classify", *named, "--model", inputs.OFFLINE, "--output", tmp_path / "y.csv")[0] == 1
    assert (tmp_path / "y.csv").read_text().count("\n") == 2
