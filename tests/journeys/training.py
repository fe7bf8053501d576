"""A training as a user types it, and what must be true of its folder, whatever the devices and options."""

import csv
import json
import os
import signal
from pathlib import Path

import keras
import numpy as np
import pytest
from memory import release_memory
from PIL import Image
from sklearn.metrics import average_precision_score, log_loss

import keras_vit
from keras_vit.recipes.runs.logs import Progress
from keras_vit_cli.main import main

COLORS = {"blue": (40, 60, 220), "green": (40, 200, 60), "red": (220, 50, 40)}
IMAGES = {"train": 16, "test": 7}  # per class: the last batch of the test split is not full
STEPS, STOPPED_AT = 12, 6
TERMINATED = 75
ARCHITECTURE = """--architecture.variant Ti/4 --architecture.depth 1 --architecture.width 16 --architecture.mlp-dim 32
 --architecture.num-heads 2""".split()
SETTINGS = """--data.image-size 8 --data.batch-size 16 --data.crop none --data.train-split train
 --data.mean 0.5 0.5 0.5 --data.std 0.5 0.5 0.5 --optimizer.learning-rate 1e-2 --optimizer.warmup-steps 1
 --run.epoch-steps 4 --run.steps-per-execution 2 --run.checkpoint-steps 4""".split()
COMMON = [*ARCHITECTURE, *SETTINGS]
CLASSIFIER = "--data.test-split test --data.validation-split test".split()
PLAIN = """--data.augment.randaugment-layers 0 --data.augment.erasing 0 --data.augment.mixup-alpha 0
 --data.augment.cutmix-alpha 0 --data.augment.repeats 1 --architecture.stochastic-depth 0 --total-epochs None""".split()
# For each kind its recipe and options; {photos}, {several} and {teacher} are paths.
RECIPES = {
    "supervised": ["digits-finetune", "--weights", "None", "--data.dataset", "folder:{photos}", *CLASSIFIER],
    "several_labels": ["digits-finetune", "--weights", "None", "--data.dataset", "csv:{several}", "--loss", "sigmoid"]
    + CLASSIFIER,
    "masked_patch": ["digits-masked-patch", "--data.dataset", "folder:{photos}"],
    "autoencoder": ["mae-b16", "--data.dataset", "folder:{photos}", "--masked-fraction", "0.5"]
    + "--decoder-depth 1 --decoder-width 16 --decoder-heads 2".split(),
    "distillation": ["deit-ti16-hard", "--data.dataset", "folder:{photos}", "--teacher", "{teacher}"]
    + [*CLASSIFIER, *PLAIN],
}
STRATEGIES = {"one": "one-device", "workers2": "multi-worker", "tpu": "tpu"}  # else mirrored


def write_photos(folder: Path):
    """folder/photos/<split>/<class>/<image>.png, and folder/several/<split>.csv with one or two colors an image."""
    generator = np.random.default_rng(0)
    several = folder / "several"
    for split, count in IMAGES.items():
        lines = ["image,labels"]
        for name, color in COLORS.items():
            (folder / "photos" / split / name).mkdir(parents=True)
            (several / split).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = np.clip(generator.normal(color, 60, (8, 8, 3)), 0, 255).astype("uint8")
                Image.fromarray(pixels).save(folder / "photos" / split / name / f"{number}.png")
                other = list(COLORS)[generator.integers(3)]
                pixels[:, 4:] = np.clip(generator.normal(COLORS[other], 60, (8, 4, 3)), 0, 255)
                Image.fromarray(pixels).save(several / split / f"{name}{number}.png")
                lines.append(f"{split}/{name}{number}.png,{';'.join(sorted({name, other}))}")
        (several / f"{split}.csv").write_text("\n".join(lines) + "\n")


def command(cell, data: Path, folder: Path, *more) -> list[str]:
    """The arguments of `keras-vit` that train a cell into a folder."""
    paths = {"photos": data / "photos", "several": data / "several", "teacher": data / "teacher.keras"}
    words = ["train", *(word.format(**paths) for word in RECIPES[cell.kind]), *COMMON, "--total-steps", str(STEPS)]
    words += ["--run.strategy", STRATEGIES.get(cell.devices, "mirrored"), "--run.precision", cell.precision]
    words += ["--optimizer.ema-momentum", "0.5"] if cell.ema else []
    words += ["--optimizer.accumulation-steps", "2"] if cell.accumulation else []
    words += ["--run.remat", cell.remat] if cell.remat else []
    words += ["--run.shard-optimizer"] if cell.devices == "jax8" and cell.interrupted else []
    return [*words, "--run.folder", str(folder), *map(str, more)]


class TerminatedAt:
    """In this context the process gets SIGTERM after a step, once."""

    def __init__(self, step):
        self.step = step

    def __enter__(self):
        self.original = original = Progress.on_train_batch_end

        def on_train_batch_end(callback, batch, logs=None):
            original(callback, batch, logs)
            if self.step and int(keras.ops.convert_to_numpy(callback.model.optimizer.iterations)) >= self.step:
                self.step = None
                os.kill(os.getpid(), signal.SIGTERM)

        Progress.on_train_batch_end = on_train_batch_end

    def __exit__(self, *error):
        Progress.on_train_batch_end = self.original


def train(cell, data: Path, folder: Path):
    """Runs the command of a cell; of an interrupted one, first until SIGTERM, then again with --run.resume."""
    if cell.interrupted:
        with TerminatedAt(STOPPED_AT):
            try:
                status = main(command(cell, data, folder))
            except SystemExit as stopped:
                status = stopped.code
        assert status == TERMINATED
    release_memory()
    assert main(command(cell, data, folder, *["--run.resume"] * cell.interrupted)) == 0


def check(cell, data: Path, folder: Path):
    """What must be true of the folder of a finished run."""
    metrics = json.loads((folder / "metrics.json").read_text())
    lines = (folder / "log.csv").read_text().splitlines()
    log = [dict(zip(lines[0].split(","), line.split(","))) for line in lines[1:]]
    assert (folder / f"step-{STEPS}.index").exists() and log[-1]["step"] == str(STEPS)
    assert not cell.interrupted or (folder / f"step-{STOPPED_AT}.index").exists()
    model = keras_vit.load(folder)
    if cell.kind in ("masked_patch", "autoencoder"):
        assert model.num_classes == 0
        assert metrics["loss"] == float(log[-1]["loss"]) < float(log[0]["loss"])
        features = np.asarray(model.features(model.preprocess([*read_test_images(data, "photos")[0]])))
        assert np.isfinite(features).all() and np.ptp(features, axis=0).max() > 1e-3  # images differ
        return
    assert tuple(model.class_names) == tuple(COLORS) and (folder / "labels.txt").read_text().split() == [*COLORS]
    check_metrics(
        metrics, *read_test_images(data, "several" if cell.kind == "several_labels" else "photos"), model, cell
    )
    assert metrics["top1"] == pytest.approx(
        float(log[-1]["val_top1"]), abs=1e-6
    )  # of the same images, with the same weights
    check_report(metrics, folder, cell)


def check_report(metrics, folder: Path, cell):
    """Compares the table of predictions and the report with metrics.json; several processes write neither."""
    if cell.devices == "workers2":
        assert not (folder / "report.html").exists()
        return
    rows = list(csv.DictReader((folder / "predictions.csv").read_text().splitlines()))
    right = [row["prediction"] in row["label"].split(";") for row in rows]
    assert len(rows) == metrics["images"] == IMAGES["test"] * len(COLORS)
    # The report computes in float32, on one device.
    assert np.mean(right) == pytest.approx(metrics["top1"], abs=1e-6 if cell.precision == "float32" else 0.05)
    report = (folder / "report.html").read_text()
    assert f"<p>{len(rows)} images, 3 classes.</p>" in report and 'alt="Loss"' in report
    if cell.devices == "jax8":
        assert "No evidence" in report and "requires the TensorFlow backend" in report
    elif cell.kind == "distillation":  # two heads
        assert "No evidence for the predicted classes" in report
    else:
        assert report.count("<figcaption>evidence<") >= 12  # of the least certain images


def check_metrics(metrics, images, labels, model, cell):
    """Compares metrics.json with counts of NumPy and scikit-learn over the predictions of the saved model.

    Args:
        images: (n, 8, 8, 3) pixels.
        labels: (n, 3) zeros and ones.
    """
    half = 0 if cell.precision == "float32" else 0.05  # of rounding: the saved model computes on one device
    logits = np.asarray(model.predict(np.asarray(model.preprocess(list(images))), verbose=0), "float64")
    correct = labels[np.arange(len(labels)), logits.argmax(-1)]
    assert metrics["images"] == len(images)
    assert (
        metrics["top1"] == pytest.approx(correct.mean(), abs=half + 1e-6) and correct.mean() > 0.6
    )  # chance: 0.33, 0.56
    if cell.kind == "several_labels":
        precision = average_precision_score(labels, logits, average="macro")
        assert metrics["mean_average_precision"] == pytest.approx(precision, abs=half + 1e-3)
        loss = np.sum(np.logaddexp(0, logits) - labels * logits, axis=-1).mean()
    else:
        probabilities = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
        smoothed = {"distillation": 0.1}.get(cell.kind, 0.0)  # of DeiT's recipe
        loss = (1 - smoothed) * log_loss(labels.argmax(-1), probabilities, labels=[0, 1, 2])
        loss -= smoothed * np.log(probabilities).mean()
    assert metrics["loss"] == pytest.approx(loss, abs=half + 1e-4)


def read_test_images(data: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, 8, 8, 3) and labels (n, 3) of a test split, read without this package."""
    names = list(COLORS)
    if name == "photos":
        files = [(file, [file.parent.name]) for file in sorted((data / "photos" / "test").rglob("*.png"))]
    else:
        rows = (line.split(",") for line in (data / "several" / "test.csv").read_text().splitlines()[1:])
        files = [(data / "several" / file, labels.split(";")) for file, labels in rows]
    images = np.stack([np.asarray(Image.open(file)) for file, _ in files])
    return images, np.array([[label in labels for label in names] for _, labels in files], int)
