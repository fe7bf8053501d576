"""`keras-vit demo --fast` in a separate process, as a user runs it, and the files it writes."""

import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser

import keras
import numpy as np
import pytest

from keras_vit_cli.main import main

pytestmark = pytest.mark.slow

# The console script.
CODE = "import sys; from keras_vit_cli.main import main; sys.exit(main())"
FORMATS = ("float32", "float16", "dynamic-int8", "mixed-int8", "int8")
COMMAND = [sys.executable, "-c", CODE, "demo", "--fast"]


@pytest.fixture(scope="module")
def environment(data_dir):
    return {**os.environ, "TFDS_DATA_DIR": data_dir, "TF_CPP_MIN_LOG_LEVEL": "2"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory, environment):
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = subprocess.run(
        [*COMMAND, "--seed", "3", "--output", str(folder)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done.stdout


def test_output_files(demo):
    folder, output = demo
    names = {file.name for file in folder.iterdir()}
    files = {f"model-{name}.tflite" for name in FORMATS}
    others = {"saved_model", "photographs", "metrics.json", "preprocessing.json", "model_card.md"}
    assert names == {"report.html", "model.keras"} | others | files
    assert {file.name for file in folder.parent.iterdir()} == {"run"}
    assert str(folder / "report.html") in output


def test_metrics(demo):
    metrics = json.loads((demo[0] / "metrics.json").read_text())
    assert metrics["seed"] == 3 and metrics["fast"] is True and metrics["num_test_images"] == 100
    assert set(metrics["test_top1"]) == {"scratch_10", "pretrained_10", "scratch_all", "pretrained_all"}
    rows = {row["name"]: row for row in metrics["exports"]}
    assert list(rows) == [
        "Keras",
        "SavedModel",
        *(f"TFLite {n}" for n in FORMATS),
    ]
    for name in ("Keras", "SavedModel", "TFLite float32"):
        assert rows[name]["agreement"] == 1 and rows[name]["max_difference"] < 1e-4
        assert rows[name]["top1"] == pytest.approx(metrics["test_top1"]["pretrained_all"], abs=1e-6)


def test_the_model_can_be_loaded(demo):
    model = keras.saving.load_model(demo[0] / "model.keras")
    assert model.image_size == (14, 14) and model(np.zeros((1, 14, 14, 3), "float32")).shape == (1, 10)


class Report(HTMLParser):
    def __init__(self):
        super().__init__()
        self.images, self.links, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "img":
            self.images.append(attributes)
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]
        if tag not in ("img", "meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report_is_valid_and_self_contained(demo):
    text = (demo[0] / "report.html").read_text()
    report = Report()
    report.feed(text)
    assert not report.open and len(report.images) == 8
    for image in report.images:
        assert image["alt"] and image["src"].startswith("data:image/png;base64,") and len(image["src"]) > 5000
    assert all(link.startswith("data:") for link in report.links) and "http" not in re.sub(r"base64,[^\"]*", "", text)
    assert "$" not in re.sub(r"base64,[^\"]*", "", text)
    assert "smoke test" in text


def test_interrupted_demo_leaves_no_files(tmp_path, capsys, monkeypatch):
    def interrupted(folder, *_):
        (folder / "model.keras").write_text("incomplete")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("keras_vit_cli.demo.command.run_demo", interrupted)
    monkeypatch.setattr("tensorflow.config.threading.set_intra_op_parallelism_threads", lambda _: None)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["demo", "--fast", "--output", str(tmp_path / "run")]) == 130
    finally:
        signal.signal(signal.SIGINT, previous)
    assert "Interrupted." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_folder_of_other_files_is_not_replaced(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("x")
    assert main(["demo", "--fast", "--output", str(tmp_path)]) == 1
    output, errors = capsys.readouterr()
    assert "contains no report.html of a previous run" in errors and "==" not in output


def test_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--help"])
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    assert all(option in output for option in ("--output", "--seed", "--fast"))
