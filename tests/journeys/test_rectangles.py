"""Every kind of training at 8 x 16 pixels, and what evaluates, exports and classifies such a run."""

import json

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

import keras_vit
from journeys.cells import Cell
from journeys.training import COLORS, COMMON, SETTINGS, command
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
SIZE = ["--data.image-size", "8", "16"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """The images of a folder photos/<split>/<class>: 12 x 30 pixels of noise, of which one side has the color."""
    folder, random = tmp_path_factory.mktemp("wide"), np.random.default_rng(0)
    for split, count in (("train", 16), ("test", 7)):
        for name, color in COLORS.items():
            place = folder / "photos" / split / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (12, 30, 3), "uint8")
                side = pixels[:, :15] if number % 2 else pixels[:, 15:]
                side[...] = np.clip(random.normal(color, 40, side.shape), 0, 255)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder / "photos"


def train(kind, photos, run):
    cell = Cell(kind, "one", "float32", False, False, None, False)
    assert main(command(cell, photos.parent, run, *SIZE)) == 0
    model = keras_vit.load(run)
    assert model.image_size == (8, 16) and model.grid == (2, 4)
    assert json.loads((run / "recipe.json").read_text())["data"]["image_size"] == [8, 16]


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    """A classifier that began with masked patches."""
    folder = tmp_path_factory.mktemp("runs")
    train("masked_patch", photos, folder / "masked")
    options = ["--weights", str(folder / "masked" / "model.keras"), "--data.dataset", f"folder:{photos}", *SETTINGS]
    options += "--data.crop pad --data.augment.cutmix-alpha 1 --data.augment.randaugment-layers 1".split()
    options += [*SIZE, "--data.validation-split", "test", "--total-steps", "12"]
    assert main(["train", "digits-finetune", *options, "--run.folder", str(folder / "classifier")]) == 0
    return folder / "classifier"


def true_and_predicted(model, photos) -> list[tuple[str, str]]:
    """Of each test image, by `classify` of its file."""
    files = sorted((photos / "test").rglob("*.png"))
    return [(file.parent.name, top[0][0]) for file, top in zip(files, model.classify([*map(str, files)]))]


def test_metrics_are_those_of_classify(run, photos, capsys):
    model, metrics = keras_vit.load(run), json.loads((run / "metrics.json").read_text())
    pairs = true_and_predicted(model, photos)
    assert metrics["top1"] == pytest.approx(np.mean([name == predicted for name, predicted in pairs]), abs=1e-6)
    capsys.readouterr()
    assert main(["evaluate", str(run), "--dataset", f"folder:{photos}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["top1"] == pytest.approx(metrics["top1"], abs=1e-6)
    options = ["--dataset", f"folder:{photos}", "--image-size", "16", "24"]
    assert main(["evaluate", str(run), *options, "--json"]) == 0
    expected = np.mean([name == predicted for name, predicted in true_and_predicted(model.resized((16, 24)), photos)])
    evaluation = json.loads(capsys.readouterr().out)
    assert evaluation["top1"] == pytest.approx(expected) and evaluation["preprocessing"]["image_size"] == [16, 24]
    assert main(["probe", str(run), *options, "--neighbors", "1"]) == 0
    assert main(["few-shot", str(run), *options, "--shots", "4", "--seeds", "0"]) == 0


def test_exports_take_rectangles(run, photos, tmp_path, capsys):
    formats = ["--formats", "float32", "saved-model", "onnx", "web", "--dataset", f"folder:{photos}"]
    assert main(["export", str(run), *formats, "--output", str(tmp_path / "files")]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 4 and all("100.00% [" in row and "1.0000" in row for row in rows)  # agreement and cosine
    interpreter = Interpreter(str(tmp_path / "files" / "model-float32.tflite"))
    interpreter.allocate_tensors()
    (inputs,), (outputs,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert inputs["shape"].tolist() == [1, 8, 16, 3]
    assert json.loads((tmp_path / "files" / "preprocessing.json").read_text())["image_size"] == [8, 16]
    file, model = photos / "test" / "red" / "0.png", keras_vit.load(run)
    pixels = model.preprocessing.pixels(str(file))
    interpreter.set_tensor(inputs["index"], np.asarray(pixels, "float32"))
    interpreter.invoke()
    expected = model.classify(str(file), top=3)[0]
    probabilities = dict(zip(model.class_names, interpreter.get_tensor(outputs["index"])[0], strict=True))
    assert [probabilities[name] for name, _ in expected] == pytest.approx([value for _, value in expected], abs=1e-5)


@pytest.mark.extended
def test_autoencoder_and_distillation(run, photos, tmp_path):
    train("autoencoder", photos, tmp_path / "autoencoder")
    (photos.parent / "teacher.keras").write_bytes((run / "model.keras").read_bytes())
    train("distillation", photos, tmp_path / "student")


def test_a_sweep_trains_rectangles(photos, tmp_path):
    words = ["--weights", "None", "--data.dataset", f"folder:{photos}", *COMMON, *SIZE, "--total-steps", "4"]
    words += ["--run.folder", str(tmp_path), "--data.validation-split", "None"]
    words = [word.replace("--", "--recipe.", 1) for word in words]
    plan = ["--learning-rates", "1e-2", "--seeds", "0", "--tuning-split", "train", "--held-out-split", "test"]
    assert main(["sweep", "digits-finetune", *words, *plan]) == 0
    assert keras_vit.load(tmp_path / "seed-0").image_size == (8, 16)
