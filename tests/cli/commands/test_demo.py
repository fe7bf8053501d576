"""`keras-vit demo --fast` in a separate process, as a user runs it, and the files it writes."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit_cli.commands.demo import report

pytestmark = pytest.mark.slow

# The console script.
CODE = "import sys; from keras_vit_cli.main import main; sys.exit(main())"
FORMATS = ("float32", "float16", "dynamic-int8", "mixed-int8", "int8")


@pytest.fixture(scope="module")
def demo(tmp_path_factory, data_dir):
    folder = tmp_path_factory.mktemp("demo") / "run"
    command = [sys.executable, "-c", CODE, "demo", "--fast", "--seed", "3", "--output", str(folder)]
    environment = {**os.environ, "TFDS_DATA_DIR": data_dir, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done.stdout


@pytest.mark.extended
def test_output_files(demo):
    folder, output = demo
    files = {"report.html", "model.keras", "saved_model", "metrics.json", "preprocessing.json"}
    files |= {"model_card.md", *(f"model-{name}.tflite" for name in FORMATS)}
    assert {file.name for file in folder.iterdir()} == files and str(folder / "report.html") in output
    assert [file.name for file in folder.parent.iterdir()] == ["run"]
    model = keras.saving.load_model(folder / "model.keras")
    assert model.image_size == (14, 14) and model(np.zeros((1, 14, 14, 3), "float32")).shape == (1, 10)


@pytest.mark.extended
def test_metrics(demo):
    metrics = json.loads((demo[0] / "metrics.json").read_text())
    assert metrics["seed"] == 3 and metrics["fast"] is True and metrics["num_test_images"] == 100
    assert set(metrics["test_top1"]) == {"scratch_10", "pretrained_10", "scratch_all", "pretrained_all"}
    rows = {row["name"]: row for row in metrics["exports"]}
    assert list(rows) == ["Keras", "SavedModel", *(f"TFLite {name}" for name in FORMATS)]
    for name in ("Keras", "SavedModel", "TFLite float32"):
        assert rows[name]["agreement"] == 1 and rows[name]["max_difference"] < 1e-4
        assert rows[name]["top1"] == pytest.approx(metrics["test_top1"]["pretrained_all"], abs=1e-6)


class Report(HTMLParser):
    def __init__(self):
        super().__init__()
        self.images, self.links, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.images += [attributes] if tag == "img" else []
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]
        self.open += [tag] if tag not in ("img", "meta", "br", "link", "wbr") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.extended
def test_report_is_valid_and_self_contained(demo):
    text = (demo[0] / "report.html").read_text()
    report = Report()
    report.feed(text)
    figures = [image for image in report.images if image["alt"]]
    # Of 6 test images each: 4 of the reconstruction; the image, rollout and evidence. Of 3 photographs: 2.
    assert not report.open and len(figures) == 3 and len(report.images) == 3 + 6 * 4 + 6 * 3 + 3 * 2
    assert all(image["src"].startswith("data:image/") for image in report.images)
    assert all(len(image["src"]) > 5000 for image in figures)
    without_images = re.sub(r"data:image[^\"]*|<meta[^>]*>", "", text)
    assert all(link.startswith("data:") for link in report.links) and "http" not in without_images
    assert "$" not in without_images and "smoke test" in text


def test_photographs_are_classified():
    images = report.read_photographs()
    found = keras_vit.load(report.PACKAGED).classify(list(images.values()), top=1)
    predicted = {name: best[0][0] for name, best in zip(images, found)}
    assert (predicted["cat.jpg"], predicted["airplane.jpg"]) == ("cat", "airplane")
    licenses = (Path(report.__file__).parent / "images" / "README.md").read_text()
    assert all(f"`{name}`" in licenses for name in images)
