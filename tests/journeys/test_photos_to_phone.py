"""From a folder of photographs to a .tflite file, a SavedModel and an ONNX file, each used without this package."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.recipes.configs import small_folder
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
SHADES = {"dark": 0, "light": 150}
# A program of somebody else: files of classes and photographs to the class of each photograph.
CLIENT = """
import json, sys
import numpy as np
from PIL import Image

sys.modules["keras_vit"] = None  # an import would fail
kind, model, *photos = sys.argv[1:]
pixels = [np.asarray(Image.open(photo).convert("RGB")) for photo in photos]
if kind == "tflite":
    import zipfile
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model)
    interpreter.allocate_tensors()
    (size,), names = {tuple(d["shape"][1:3]) for d in interpreter.get_input_details()}, zipfile.ZipFile(model)
    names = names.read("labels.txt").decode().split("\\n")
    rows = []
    for image in pixels:
        image = np.asarray(Image.fromarray(image).resize(size[::-1]), "float32")[None]
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
        interpreter.invoke()
        rows.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0])
elif kind == "saved_model":
    import tensorflow as tf

    loaded = tf.saved_model.load(model)
    result = loaded.signatures["serve_bytes"](tf.constant([open(photo, "rb").read() for photo in photos]))
    rows, names = result["probabilities"].numpy(), open(model + "/assets/labels.txt").read().split("\\n")
print(json.dumps([[names[int(np.argmax(row))], float(np.max(row))] for row in rows]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, journey_data):
    """The folder of a finished `keras-vit finetune` of photos/<class>/<image>."""
    folder = tmp_path_factory.mktemp("phone")
    random = np.random.default_rng(0)
    for name, low in SHADES.items():
        (folder / "my photos" / name).mkdir(parents=True)
        for number in range(16):
            pixels = random.integers(low, low + 100, (20, 20, 3), "uint8")
            suffix = "tiff" if number % 4 == 3 else "png"  # TensorFlow reads no TIFF
            Image.fromarray(pixels).save(folder / "my photos" / name / f"{number}.{suffix}")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(small_folder, "MOST_EPOCHS", 12)
        assert main(["finetune", "my photos", "--weights", str(journey_data / "teacher.keras")]) == 0
        # The same command again trains nothing, and finds the same file.
        written = (folder / "runs" / "my photos" / "model.keras").stat().st_mtime_ns
        assert main(["finetune", "my photos", "--weights", str(journey_data / "teacher.keras")]) == 0
        assert (folder / "runs" / "my photos" / "model.keras").stat().st_mtime_ns == written
        export = ["export", "runs/my photos", "--formats", "float32", "saved-model", "--output", "files"]
        assert main([*export, "--dataset", "folder:my photos"]) == 0
    return folder


def test_metrics_are_those_of_the_held_out_photographs(run, capsys):
    metrics = json.loads((run / "runs" / "my photos" / "metrics.json").read_text())
    options = ["--dataset", f"folder:{run / 'my photos'}", "--json"]
    capsys.readouterr()
    assert main(["evaluate", str(run / "runs" / "my photos"), *options]) == 0
    evaluation = json.loads(capsys.readouterr().out)
    assert evaluation["images"] == metrics["images"] < 32 and evaluation["top1"] == metrics["top1"] == 1.0
    rows = list(csv.DictReader((run / "runs" / "my photos" / "predictions.csv").read_text().splitlines()))
    assert {Path(row["file"]).suffix for row in rows} == {".png", ".tiff"}
    assert len(rows) == metrics["images"] and all(Path(row["file"]).parent.name == row["prediction"] for row in rows)
    report = (run / "runs" / "my photos" / "report.html").read_text()
    assert (
        "model-dynamic-int8.tflite" in report
        and 'alt="Loss"' in report
        and 'alt="Accuracy, %"' in report
        and "<figcaption>evidence<" in report
    )


@pytest.mark.parametrize(
    "kind,file",
    [
        ("tflite", "runs/my photos/exported/model-dynamic-int8.tflite"),
        ("tflite", "files/model-float32.tflite"),
        ("saved_model", "files/saved_model"),
    ],
)
def test_files_classify_without_this_package(kind, file, run, tmp_path):
    photos = [run / "my photos" / name / f"{number}.png" for name in SHADES for number in range(3)]
    command = [sys.executable, "-c", CLIENT, kind, str(run / file), *map(str, photos)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    results = json.loads(output.splitlines()[-1])
    predictions = keras_vit.load(run / "runs" / "my photos").classify(list(map(str, photos)), top=1)
    tolerance = 0.1 if "int8" in file else 0.02  # the client resizes with Pillow's filter
    for photo, (name, probability), [(expected_name, expected)] in zip(photos, results, predictions, strict=True):
        assert name == expected_name == photo.parent.name
        assert probability == pytest.approx(expected, abs=tolerance)


def test_a_run_goes_on_with_a_new_class(run, tmp_path, monkeypatch, capsys):
    """The images that the first run was trained on are no test images, and its accuracy is on the same images."""
    shutil.copytree(run, tmp_path / "later")
    monkeypatch.chdir(tmp_path / "later")
    monkeypatch.setattr(small_folder, "MOST_EPOCHS", 6)
    random, photos = np.random.default_rng(1), Path("my photos")
    (photos / "middle").mkdir()
    for number in range(16):
        pixels = random.integers(75, 175, (20, 20, 3), "uint8")
        Image.fromarray(pixels).save(photos / "middle" / f"{number}.png")
        Image.fromarray(random.integers(150, 250, (20, 20, 3), "uint8")).save(photos / "light" / f"more-{number}.png")
    assert main(["finetune", "my photos", "--weights", "runs/my photos"]) == 0
    out = capsys.readouterr().out
    later = Path("runs") / "my photos-2"
    tables = [
        list(csv.DictReader((later / name).read_text().splitlines()))
        for name in ("earlier-predictions.csv", "predictions.csv")
    ]
    before, after = tables
    tested_first = {
        row["file"] for row in csv.DictReader(Path("runs/my photos/predictions.csv").read_text().splitlines())
    }
    first = {f"my photos/{name}/{number}.png" for name in SHADES for number in range(16)}
    assert not {row["file"] for row in after} & (first - tested_first)
    right = [sum(row["label"] == row["prediction"] for row in table) for table in tables]
    new = sum(row["label"] == "middle" for row in after)
    assert new and not any(row["prediction"] == "middle" for row in before)
    assert f"{right[0]} of {len(after)} images; {new} {'is' if new == 1 else 'are'} of classes" in out
    assert f"{100 * (right[1] - right[0]) / len(after):+.1f} points" in out
    expected = keras_vit.load("runs/my photos").classify([row["file"] for row in before], top=1)
    assert [name for [(name, _)] in expected] == [row["prediction"] for row in before]
    recipe = json.loads((later / "recipe.json").read_text())
    assert recipe["keep_head"] and Path(recipe["weights"]) == later / "start.keras"
    start, earlier = keras_vit.load(later / "start.keras"), keras_vit.load("runs/my photos")
    assert start.class_names == ("dark", "light", "middle")
    np.testing.assert_array_equal(start.head.get_weights()[0][:, :2], earlier.head.get_weights()[0])
