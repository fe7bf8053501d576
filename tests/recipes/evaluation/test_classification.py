import numpy as np
import pytest

from keras_vit.recipes.evaluation.classification import BINS, Evaluation, vtab_means

CLASSES, IMAGES = 8, 200


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 2, (IMAGES, CLASSES)).astype("float32")


@pytest.fixture
def labels(logits):
    """Right two times of three."""
    random = np.random.default_rng(1)
    return np.where(random.random(IMAGES) < 2 / 3, logits.argmax(axis=1), random.integers(0, CLASSES, IMAGES))


def evaluated(logits, labels, batch=IMAGES):
    evaluation = Evaluation(logits.shape[1])
    for first in range(0, len(logits), batch):
        evaluation.update(logits[first : first + batch], labels[first : first + batch])
    return evaluation


def softmax(logits):
    exponentials = np.exp(logits.astype("float64"))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def test_accuracies_and_likelihood(logits, labels):
    found = evaluated(logits, labels).summary()
    order = np.argsort(-logits, axis=1)
    assert found["images"] == found["counted"] == IMAGES
    assert found["top1"] == np.mean(order[:, 0] == labels)
    assert found["top5"] == np.mean((order[:, :5] == labels[:, None]).any(axis=1))
    likelihood = np.log(softmax(logits)[np.arange(IMAGES), labels])
    assert found["negative_log_likelihood"] == pytest.approx(-likelihood.mean(), rel=1e-12)
    assert "top5" not in evaluated(logits[:, :5], np.zeros(IMAGES, int)).summary()


def test_calibration_error_by_definition(logits, labels):
    logits[:20] *= 20  # confidences of 1
    evaluation = evaluated(logits, labels)
    confidence, right = softmax(logits).max(axis=1), logits.argmax(axis=1) == labels
    error = 0.0
    for row, number in zip(evaluation.reliability(), range(BINS)):
        inside = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        assert row["images"] == inside.sum() and (row["above"], row["to"]) == (number / 15, (number + 1) / 15)
        if inside.any():
            assert row["confidence"] == pytest.approx(confidence[inside].mean(), rel=1e-12)
            assert row["accuracy"] == pytest.approx(right[inside].mean(), rel=1e-12)
            error += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
        else:
            assert row["confidence"] is None and row["accuracy"] is None
    assert evaluation.summary()["calibration_error"] == pytest.approx(error, rel=1e-12)


def test_a_calibrated_and_an_overconfident_model():
    """Half of the images right with a confidence of one half, or of 1."""
    labels = np.array([0, 1] * 10)
    for high, error in ((0.0, 0.0), (1e3, 0.5)):
        logits = np.tile([high, 0.0, -1e3], (20, 1))
        assert evaluated(logits, labels).summary()["calibration_error"] == pytest.approx(error, abs=1e-12)
    assert np.isfinite(evaluated(logits, labels).summary()["negative_log_likelihood"])


def test_batches_add_up(logits, labels):
    whole, parts = evaluated(logits, labels), evaluated(logits, labels, batch=7)
    assert whole.summary() == pytest.approx(parts.summary(), rel=1e-12)
    names = [f"class {number}" for number in range(CLASSES)]
    assert whole.per_class(names) == parts.per_class(names)


def test_per_class(logits, labels):
    labels[labels == 4] = 3  # a class without images
    rows = evaluated(logits, labels).per_class("abcdefgh")
    assert [row["class"] for row in rows] == list("abcdfgh")
    taken = logits.argmax(axis=1)
    for row in rows:
        members = labels == "abcdefgh".index(row["class"])
        assert row["images"] == members.sum()
        assert row["accuracy"] == np.mean(taken[members] == labels[members])
        counts = np.bincount(taken[members & (taken != labels)], minlength=CLASSES)
        assert row["confused"] == counts.max() > 0
        assert row["confused_with"] == "abcdefgh"[counts.argmax()]
    perfect = evaluated(np.eye(3), np.arange(3)).per_class("abc")
    assert perfect[0] == {"class": "a", "images": 1, "accuracy": 1.0, "confused_with": None, "confused": 0}


def test_real_labels_as_their_authors_count(logits):
    """Their example: `pred in real_labels[i] for i, pred in enumerate(predictions) if real_labels[i]`."""
    several = np.random.default_rng(2).random((IMAGES, CLASSES)) < 0.2
    lists = [np.flatnonzero(row).tolist() for row in several]
    found = evaluated(logits, several.astype("float32"), batch=64).summary()
    right = [taken in lists[i] for i, taken in enumerate(logits.argmax(axis=1)) if lists[i]]
    assert found["images"] == IMAGES > found["counted"] == len(right)
    assert found["top1"] == np.mean(right)
    top5 = np.argsort(-logits, axis=1)[:, :5]
    assert found["top5"] == np.mean([bool(set(top5[i]) & set(lists[i])) for i in range(IMAGES) if lists[i]])
    of_right = (softmax(logits) * several).sum(axis=1)[several.any(axis=1)]
    assert found["negative_log_likelihood"] == pytest.approx(-np.log(of_right).mean(), rel=1e-12)


def test_several_right_classes_in_the_table(logits):
    several = np.zeros((2, 3))
    several[0, [0, 2]] = several[1, [1, 2]] = 1
    rows = evaluated(np.array([[5.0, 0, 0], [5.0, 0, 0]]), several).per_class("abc")
    assert [(row["class"], row["images"], row["accuracy"]) for row in rows] == [
        ("a", 1, 1),
        ("b", 1, 0),
        ("c", 2, 0.5),
    ]
    assert [row["confused_with"] for row in rows] == [None, "a", "a"]


def test_of_equal_logits_the_first_class_wins():
    found = evaluated(np.zeros((10, 10)), np.arange(10)).summary()
    assert (found["top1"], found["top5"]) == (0.1, 0.5)


def test_many_classes_need_little_memory():
    evaluation = Evaluation(21_843)
    evaluation.update(np.zeros((3, 21_843), "float32"), np.array([0, 4, 21_842]))
    found = evaluation.summary()
    assert (found["top1"], found["top5"]) == (1 / 3, 2 / 3)
    assert found["negative_log_likelihood"] == pytest.approx(np.log(21_843))
    assert evaluation.class_counts.nbytes < 400_000 and len(evaluation.confusions) == 2


def test_bad_input_is_refused(logits, labels):
    evaluation = Evaluation(CLASSES)
    with pytest.raises(ValueError, match="None of the 0 images has a label"):
        evaluation.summary()
    with pytest.raises(ValueError, match=r"must have the shape \(B, 8\). Received: \(200, 5\)"):
        evaluation.update(logits[:, :5], labels)
    with pytest.raises(ValueError, match=r"Labels must be in \[0, 8\). Received: -1 to "):
        evaluation.update(logits, np.where(labels == 0, -1, labels))
    with pytest.raises(ValueError, match=r"must be integers \(200,\) or numbers \(200, 8\). Received: float64"):
        evaluation.update(logits, labels.astype("float64"))
    logits[3, 2] = np.nan
    with pytest.raises(ValueError, match="hold NaN or infinite values"):
        evaluation.update(logits, labels)


# Table 9 of the paper, ViT-L/16 pre-trained on ImageNet-21k; groups of arXiv 1910.04867.
NATURAL = {"caltech": 90.8, "cifar": 84.1, "dtd": 74.1, "flowers": 99.3, "pets": 92.7, "sun": 61.0, "svhn": 80.9}
SPECIALIZED = {"camelyon": 82.5, "eurosat": 95.6, "resisc": 85.2, "retinopathy": 75.3}
STRUCTURED = {"count": 70.3, "distance": 56.1, "dmlab": 41.9, "location": 74.7, "orientation": 64.9, "kitti": 79.9}
STRUCTURED |= {"azimuth": 30.5, "elevation": 41.7}


def test_vtab_means_are_the_papers():
    accuracies = {**NATURAL, **SPECIALIZED, **STRUCTURED}
    groups = dict.fromkeys(NATURAL, "natural") | dict.fromkeys(SPECIALIZED, "specialized")
    groups |= dict.fromkeys(STRUCTURED, "structured")
    means = vtab_means(accuracies, groups)
    assert list(means) == ["natural", "specialized", "structured", "all"]
    assert round(means["all"], 1) == 72.7
    assert means["natural"] == pytest.approx(np.mean(list(NATURAL.values())))
    assert means["structured"] == pytest.approx(np.mean(list(STRUCTURED.values())))
    del accuracies["pets"]
    with pytest.raises(ValueError, match="Missing: pets. Unknown: cats"):
        vtab_means({**accuracies, "cats": 1.0}, groups)
