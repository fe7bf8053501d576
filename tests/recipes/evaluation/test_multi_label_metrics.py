"""Mean average precision. tests/data/average_precision.npz has scikit-learn's results, also for equal scores."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA
from images_on_disk import jpeg
from sklearn.metrics import average_precision_score

from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.evaluation.classification_metrics import MultiLabelMetrics
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.training.metrics import BINS, LARGEST_LOGIT, LINEAR_RANGE, MeanAveragePrecision
from keras_vit_cli.main import main

GOLDEN = np.load(DATA / "average_precision.npz")


def test_metrics_of_batches_are_those_of_all_images():
    metrics = MultiLabelMetrics(6)
    for part in np.split(np.arange(80), [30, 31]):
        metrics.update(GOLDEN["scores"][part], GOLDEN["labels"][part].astype("float32"))
    summary = metrics.summary()
    assert summary["mean_average_precision"] == pytest.approx(float(GOLDEN["mean"]), rel=1e-12)
    assert (summary["images"], summary["counted"]) == (80, GOLDEN["labels"].any(axis=1).sum())
    rows = metrics.per_class("abcdef")
    assert [row["class"] for row in rows] == list("abcde")
    assert rows[0] == {
        "class": "a",
        "images": GOLDEN["labels"][:, 0].sum(),
        "average_precision": pytest.approx(GOLDEN["precisions"][0]),
    }
    for outputs, labels, message in (
        (np.full((1, 6), np.nan), np.ones((1, 6)), "NaN"),
        (np.zeros((1, 6)), np.zeros(1, int), r"\(1, 6\) and \(1,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            metrics.update(outputs, labels)
    with pytest.raises(ValueError, match="0 images"):
        MultiLabelMetrics(6).summary()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_metric_of_training_equals_scikit_learn_of_rounded_logits(jit_compile):
    metric = MeanAveragePrecision(6)
    update = tf.function(metric.update_state, jit_compile=jit_compile)
    for part in np.split(np.arange(80), 4):  # scores in steps of 0.1 are in bins of their own
        weights = np.append(np.full(20, 1.5, "float32"), 0)
        pad = lambda values, with_: np.append(values, np.full((1, 6), with_), 0).astype("float32")  # noqa: E731
        update(pad(GOLDEN["labels"][part], 1), pad(GOLDEN["scores"][part], -9), weights)
    assert float(metric.result()) == pytest.approx(float(GOLDEN["mean"]), abs=1e-6)
    metric.reset_state()
    metric.update_state(GOLDEN["labels"], GOLDEN["fine"])
    assert float(metric.result()) == pytest.approx(float(GOLDEN["fine_mean"]), abs=2e-3)
    step = 2 * np.arcsinh(LARGEST_LOGIT / LINEAR_RANGE) / BINS
    rounded = np.floor(np.arcsinh(GOLDEN["fine"] / LINEAR_RANGE) / step)
    exact = np.mean([average_precision_score(GOLDEN["labels"][:, i], rounded[:, i]) for i in range(5)])
    assert float(metric.result()) == pytest.approx(exact, abs=1e-6)
    copy = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert copy.num_classes == 6 and float(copy.result()) == 0


@pytest.mark.parametrize("shift", [-40, -15, 30])
def test_the_metric_of_training_depends_on_ranks_alone(shift):
    metric = MeanAveragePrecision(6)
    metric.update_state(GOLDEN["labels"], (GOLDEN["fine"] + shift).astype("float32"))
    assert float(metric.result()) == pytest.approx(float(GOLDEN["fine_mean"]), abs=0.01)


@pytest.fixture
def files(trained_toy, tmp_path):
    """A model file, and a folder of images whose labels are what their brightness is above: dark ones have none."""
    lines = ["image,labels"]
    for value in range(0, 240, 10):
        (tmp_path / f"{value}.jpg").write_bytes(jpeg(value))
        labels = [name for name, least in (("gray", 80), ("light", 160)) if value >= least]
        lines.append(f"{value}.jpg,{';'.join(labels)}")
    (tmp_path / "test.csv").write_text("\n".join(lines))
    model = trained_toy(image_size=8, num_classes=2, depth=1, class_names=["gray", "light"], multi_label=True)
    model.head.bias.assign_add([3.0, 2.0])
    model.save(tmp_path / "model.keras")
    return model, str(tmp_path / "model.keras"), tmp_path


def test_evaluate_classifier(files):
    model, _, folder = files
    dataset = open_dataset(Data(f"csv:{folder}"))
    images, labels = next(decoded_images(dataset, "test", 24))
    logits = np.asarray(model(model.preprocess(images)))
    expected = np.mean([average_precision_score(labels[:, i] > 0, logits[:, i]) for i in range(2)])
    summary = evaluate_classifier(model, dataset, "test").summary
    assert summary == {"images": 24, "counted": 16, "mean_average_precision": pytest.approx(expected)}
    assert not model.with_head(3).multi_label


@pytest.mark.slow
def test_commands_know_several_labels(files, capsys):
    _, model, folder = files
    out, image, dataset = folder / "exported", str(folder / "200.jpg"), f"csv:{folder}"
    assert main(["evaluate", model, "--dataset", dataset, "--per-class"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["evaluate", model, "--dataset", dataset, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert f"mean average precision {report['mean_average_precision']:.2%}" in lines
    assert lines[-1].split()[:2] == ["light", "8"] and [row["class"] for row in report["classes"]] == ["gray", "light"]
    assert main(["export", model, "--output", str(out), "--formats", "float32", "--dataset", dataset]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| float32 |")]
    assert "| +0.00 (+0) [-" in row and "] | 100.00% [" in row and "] | 0.0000 |" in row
    answers = []
    for file in (model, str(out / "model-float32.tflite")):
        assert main(["classify", image, "--model", file]) == 0
        answers.append(capsys.readouterr().out)
    # Sigmoids, whose sum may be above 1.
    assert answers[0] == answers[1] and sum(float(line.split("%")[0]) for line in answers[0].splitlines()[1:]) > 120
    splits = ["--data.train-split", "test", "--data.validation-split", "test"]
    options = [*splits, "--weights", model, "--data.dataset", dataset, "--loss", "softmax"]
    assert main(["train", "digits-finetune", *options]) == 1
    assert "--loss sigmoid" in capsys.readouterr().err
