import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score

from keras_vit.recipes.evaluation.classification_metrics import BINS, ClassificationMetrics

CLASSES, IMAGES = 8, 200


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 2, (IMAGES, CLASSES)).astype("float32")


@pytest.fixture
def labels(logits):
    """Correct for two thirds of the images."""
    random = np.random.default_rng(1)
    return np.where(random.random(IMAGES) < 2 / 3, logits.argmax(axis=1), random.integers(0, CLASSES, IMAGES))


def evaluate(logits, labels, batch=IMAGES):
    metrics = ClassificationMetrics(logits.shape[1])
    for first in range(0, len(logits), batch):
        metrics.update(logits[first : first + batch], labels[first : first + batch])
    return metrics


def softmax(logits):
    exponentials = np.exp(logits.astype("float64"))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def test_accuracy_and_likelihood(logits, labels):
    whole, parts = evaluate(logits, labels), evaluate(logits, labels, batch=7)
    summary, order = whole.summary(), np.argsort(-logits, axis=1)
    assert summary["images"] == summary["counted"] == IMAGES
    assert summary["top1"] == np.mean(order[:, 0] == labels)
    assert summary["top5"] == np.mean((order[:, :5] == labels[:, None]).any(axis=1))
    likelihood = np.log(softmax(logits)[np.arange(IMAGES), labels])
    assert summary["negative_log_likelihood"] == pytest.approx(-likelihood.mean(), rel=1e-12)
    assert parts.summary() == pytest.approx(summary, rel=1e-12)
    predicted = order[:, 0]
    assert summary["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predicted), rel=1e-12)
    assert summary["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"), rel=1e-12)
    assert summary["majority"] == np.bincount(labels).max() / IMAGES
    matrix = confusion_matrix(labels, predicted, labels=range(CLASSES))
    np.testing.assert_array_equal(whole.confusion_matrix(), matrix)
    np.testing.assert_array_equal(parts.confusion_matrix(), matrix)
    assert whole.per_class("abcdefgh") == parts.per_class("abcdefgh")
    assert "top5" not in evaluate(logits[:, :5], np.zeros(IMAGES, int)).summary()


def test_calibration_error_matches_its_definition(logits, labels):
    logits[:20] *= 20  # confidences of 1
    metrics = evaluate(logits, labels)
    confidence, correct = softmax(logits).max(axis=1), logits.argmax(axis=1) == labels
    error = 0.0
    for row, number in zip(metrics.reliability(), range(BINS)):
        inside = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        assert row["images"] == inside.sum() and (row["above"], row["to"]) == (number / 15, (number + 1) / 15)
        if inside.any():
            assert row["confidence"] == pytest.approx(confidence[inside].mean(), rel=1e-12)
            assert row["accuracy"] == pytest.approx(correct[inside].mean(), rel=1e-12)
            error += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
        else:
            assert row["confidence"] is None and row["accuracy"] is None
    assert metrics.summary()["calibration_error"] == pytest.approx(error, rel=1e-12)


@pytest.mark.parametrize("high,error", [(0.0, 0.0), (1e3, 0.5)])
def test_calibration_error_of_calibrated_and_overconfident_models(high, error):
    """Half of the predictions are correct, with a confidence of 0.5 or 1."""
    summary = evaluate(np.tile([high, 0.0, -1e3], (20, 1)), np.array([0, 1] * 10)).summary()
    assert summary["calibration_error"] == pytest.approx(error, abs=1e-12)
    assert np.isfinite(summary["negative_log_likelihood"])


def test_per_class(logits, labels):
    labels[labels == 4] = 3  # a class without images
    rows = evaluate(logits, labels).per_class("abcdefgh")
    assert [row["class"] for row in rows] == list("abcdfgh")
    taken = logits.argmax(axis=1)
    for row in rows:
        members = labels == "abcdefgh".index(row["class"])
        assert row["images"] == members.sum()
        assert row["accuracy"] == np.mean(taken[members] == labels[members])
        counts = np.bincount(taken[members & (taken != labels)], minlength=CLASSES)
        assert row["confused"] == counts.max() > 0
        assert row["confused_with"] == "abcdefgh"[counts.argmax()]
    perfect = evaluate(np.eye(3), np.arange(3)).per_class("abc")
    assert perfect[0] == {"class": "a", "images": 1, "accuracy": 1.0, "confused_with": None, "confused": 0}


def test_real_labels_match_the_authors_code(logits):
    """Their example: `pred in real_labels[i] for i, pred in enumerate(predictions) if real_labels[i]`."""
    several = np.random.default_rng(2).random((IMAGES, CLASSES)) < 0.2
    lists = [np.flatnonzero(row).tolist() for row in several]
    summary = evaluate(logits, several.astype("float32"), batch=64).summary()
    assert "majority" not in summary and "macro_f1" not in summary
    assert evaluate(logits, several).confusion_matrix() is None
    correct = [taken in lists[i] for i, taken in enumerate(logits.argmax(axis=1)) if lists[i]]
    assert summary["images"] == IMAGES > summary["counted"] == len(correct)
    assert summary["top1"] == np.mean(correct)
    top5 = np.argsort(-logits, axis=1)[:, :5]
    assert summary["top5"] == np.mean([bool(set(top5[i]) & set(lists[i])) for i in range(IMAGES) if lists[i]])
    of_right = (softmax(logits) * several).sum(axis=1)[several.any(axis=1)]
    assert summary["negative_log_likelihood"] == pytest.approx(-np.log(of_right).mean(), rel=1e-12)
    rows = evaluate(np.array([[5.0, 0, 0], [5.0, 0, 0]]), np.array([[1, 0, 1], [0, 1, 1]])).per_class("abc")
    found = [(row["class"], row["images"], row["accuracy"], row["confused_with"]) for row in rows]
    assert found == [("a", 1, 1, None), ("b", 1, 0, "a"), ("c", 2, 0.5, "a")]


def test_first_class_wins_ties():
    summary = evaluate(np.zeros((10, 10)), np.arange(10)).summary()
    assert (summary["top1"], summary["top5"]) == (0.1, 0.5)


def test_confidences_of_sigmoids_are_those_of_classify():
    metrics = ClassificationMetrics(3, "sigmoid")
    metrics.update(np.array([[2.0, 1.0, -1.0], [0.5, -3.0, -3.0]]), np.array([0, 1]))
    summary, sigmoids = metrics.summary(), 1 / (1 + np.exp([-2.0, -0.5]))
    assert summary["calibration_error"] == pytest.approx(((1 - sigmoids[0]) + sigmoids[1]) / 2)
    assert summary["top1"] == 0.5 and "negative_log_likelihood" not in summary


def test_invalid_inputs(logits, labels):
    metrics = ClassificationMetrics(CLASSES)
    with pytest.raises(ValueError, match="0 images"):
        metrics.summary()
    for outputs, targets, message in (
        (logits[:, :5], labels, r"\(B, 8\). Received: \(200, 5\)"),
        (logits, np.where(labels == 0, -1, labels), r"\[0, 8\). Received: -1 to "),
        (logits, labels.astype("float64"), "Received: float64"),
        (np.where(logits == logits.max(), np.nan, logits), labels, "NaN or infinity"),
    ):
        with pytest.raises(ValueError, match=message):
            metrics.update(outputs, targets)
