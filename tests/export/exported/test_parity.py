"""Parity rows and table of every format."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export import Parity, check_parity, parity_table, write_onnx, write_saved_model, write_tflite
from keras_vit.export.exported.parity import (
    check_embeddings,
    embedding_table,
    logit_cosine,
)
from keras_vit.intervals import paired_interval


def test_cosine_of_constant_outputs():
    constant, other = np.full((1, 4), 0.25), np.array([[0.97, 0.01, 0.01, 0.01]])
    for one, two, expected in ((constant, other, 0), (other, constant, 0), (constant, constant, 1), (other, other, 1)):
        assert logit_cosine(one, two) == pytest.approx(expected)


@pytest.mark.slow
def test_rows_of_every_format(artifacts, classifier, images, inputs):
    rows = {row.name: row for row in check_parity(classifier, artifacts, images, inputs[1])}
    assert set(rows) == set(artifacts)
    for name in ("keras", "saved_model", "onnx", "float32"):
        assert rows[name].top1 == rows[name].agreement == 1 and rows[name].accuracy_drop == 0
        assert rows[name].max_difference < 1e-4
    assert rows["dynamic-int8"].max_difference >= rows["dynamic-int8"].mean_difference > rows["float32"].mean_difference
    for name, row in rows.items():
        assert row.median_ms > 0
        files = [artifacts[name], *artifacts[name].rglob("*")]
        assert row.size_bytes == sum(file.stat().st_size for file in files if file.is_file())


@pytest.mark.slow
def test_another_model_has_differences(artifacts, classifier, images, inputs):
    labels = inputs[1]
    changed = classifier.with_head(4)  # zero weights: equal probabilities
    (row,) = check_parity(changed, {"file": artifacts["float32"]}, images, labels)
    assert row.top1 == 1 and row.agreement == pytest.approx(0.25) and row.accuracy_drop == pytest.approx(-0.75)
    assert row.max_difference > 0.5


@pytest.mark.slow
def test_nan_is_no_agreement(classifier, images, inputs, tmp_path):
    diverged = classifier.with_head(4)
    diverged.head.bias.assign([0, np.nan, 0, 0])
    diverged.save(tmp_path / "diverged.keras")
    images, labels = images[:5], inputs[1][:5]
    with pytest.raises(FloatingPointError, match="^The model .* returns NaN or infinity for 5 of 5 images"):
        check_parity(diverged, {"keras": tmp_path / "diverged.keras"}, images, labels)
    with pytest.raises(FloatingPointError, match="^The export damaged returns NaN or infinity for 5 of 5 images"):
        check_parity(classifier, {"damaged": tmp_path / "diverged.keras"}, images, labels)


@pytest.mark.slow
def test_sigmoids_are_compared_by_their_largest_difference(classifier, images, inputs, tmp_path):
    """Two labels per image, of which one is right, and one image without a label."""
    model = type(classifier).from_config({**classifier.get_config(), "multi_label": True})
    model.set_weights(classifier.get_weights())
    model.save(tmp_path / "model.keras")
    model.head.kernel.assign(model.head.kernel + 0.01)
    model.save(tmp_path / "other.keras")
    model.head.kernel.assign(model.head.kernel - 0.01)
    files = {"same": tmp_path / "model.keras", "other": tmp_path / "other.keras"}
    labels = np.eye(4)[inputs[1]] + np.eye(4)[(inputs[1] + 1) % 4]
    labels[7] = 0
    same, other = check_parity(model, files, images, labels)
    assert (same.top1, same.cosine) == (1, None) and same.max_difference < 1e-4 < other.max_difference < 0.3
    table = parity_table([same, other])
    assert "| largest difference | size |" in table and f"| {other.max_difference:.4f} |" in table
    with pytest.raises(ValueError, match="zeros only"):
        check_parity(model, files, images, 0 * labels)


@pytest.mark.slow
def test_embeddings_of_every_kind_of_file(classifier, images, trained_toy, tmp_path):
    (file,) = write_tflite(classifier, tmp_path, ["dynamic-int8"], signatures=["embed"]).values()
    (row,) = check_embeddings(classifier, {"dynamic-int8": file}, images)
    interpreter = Interpreter(str(file))
    interpreter.allocate_tensors()
    cosines = []
    for image, features in zip(images, np.asarray(classifier.features(images / 127.5 - 1), "float64")):
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image[None])
        interpreter.invoke()
        (embedding,) = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        cosines.append(embedding @ features / np.linalg.norm(embedding) / np.linalg.norm(features))
    assert (row.mean_cosine, row.smallest_cosine) == pytest.approx((np.mean(cosines), min(cosines)), abs=1e-6)
    assert 0.9 < row.smallest_cosine < row.mean_cosine < 0.9999
    for name, options in {"features": {"num_classes": 0}, "projection": {"projection": True}}.items():
        model, folder = trained_toy(**options), tmp_path / name
        (float32,) = write_tflite(model, folder, ["float32"], signatures=["embed"]).values()
        other = write_saved_model(model, folder / "m") if name == "features" else write_onnx(model, folder / "m.onnx")
        first, second = check_embeddings(model, {"float32": float32, "other": other}, images)
        assert (first.smallest_cosine, second.smallest_cosine) == pytest.approx((1, 1))
    lines = embedding_table([row]).splitlines()
    assert lines[0] == "| | embedding cosine | smallest cosine | size | median |"
    assert lines[2].startswith(f"| dynamic-int8 | {np.mean(cosines):.4f} | {min(cosines):.4f} | 0.0")


def test_table_is_in_percentage_points():
    ends = (-0.004, 0.029), (0.87, 0.925)
    rows = [Parity("int8", 0.5, 0.0125, 0.9, 0.99, 0.1, 0.01, 2_000_000, 3.21, count, *ends) for count in (4000, 80)]
    assert parity_table(rows).splitlines() == [
        "| | top-1 | change | agreement | logit cosine | size | median |",
        "|---|---|---|---|---|---|---|",
        "| int8 | 50.00% | -1.25 [-2.9, +0.4] | 90.00% [87.0, 92.5] | 0.9900 | 2.00 MB | 3.2 ms |",
        "| int8 | 50.00% (40 of 80) | -1.25 (-1) [-2.9, +0.4] | 90.00% [87.0, 92.5] | 0.9900 | 2.00 MB | 3.2 ms |",
    ]


def test_paired_bootstrap_has_the_normal_limit():
    """40 of 10,000 images lost and 10 gained: the difference has mean 0.003, variance (0.005 - 0.003^2) / 10,000."""
    before, after = np.zeros(10_000, bool), np.zeros(10_000, bool)
    before[:40] = after[40:50] = True
    before[50:8000] = after[50:8000] = True  # both right
    half = 1.96 * ((0.005 - 0.003**2) / 10_000) ** 0.5
    assert paired_interval(before, after) == pytest.approx((0.003 - half, 0.003 + half), abs=1.5e-4)
    assert paired_interval(after, before) == pytest.approx((-0.003 - half, -0.003 + half), abs=1.5e-4)
    assert paired_interval([True], [True]) == (-1, 1)  # one image says nothing
    assert paired_interval(before, before) == (-0.0003, 0.0003)


def test_invalid_arguments(classifier, images, inputs, toy):
    labels = inputs[1]
    cases = [
        (classifier, images, labels[:-1], r"\(60,\), or zeros and ones, \(60, 4\). Received: \(59,"),
        (classifier, images, labels[:, None], r"Received: \(60, 1"),  # a column would broadcast
        (toy(num_classes=0), images, labels, "has no head"),
        (toy(projection=True), images, labels, "projection"),
        ("model.keras", images, labels, "Received: a str"),
    ]
    cases += [(classifier, x, labels[: len(x)], "16, 16, 3") for x in (images[:0], images[:, :8], images[0])]
    cases += [(classifier, x, labels, "Received: values") for x in (inputs[0], 257 * images, images + np.nan)]
    for model, wrong_images, wrong_labels, message in cases:
        with pytest.raises(ValueError, match=message):
            check_parity(model, {}, wrong_images, wrong_labels)
