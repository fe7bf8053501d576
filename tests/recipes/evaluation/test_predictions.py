"""Tables of predictions: what is read is what was written; two of them against SciPy's tests."""

import re
import tracemalloc

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import binomtest, bootstrap
from sklearn.metrics import balanced_accuracy_score

from keras_vit.intervals import wilson_interval
from keras_vit.recipes.evaluation.predictions import (
    Predictions,
    compare_predictions,
    read_predictions,
    write_predictions,
)

NAMES = ["cat", "a;b", 'say "x", y']
RANDOM = np.random.default_rng(0)


def table(path, logits, labels, activation="softmax", files=None):
    with write_predictions(path, NAMES, activation) as rows:
        rows.add(files or [f"{i}.png" for i in range(len(logits))], logits, labels)
    return read_predictions(path)


def test_a_table_is_read_as_written(tmp_path):
    logits, labels = RANDOM.normal(size=(9, 3)), np.arange(9) % 3
    read = table(tmp_path / "x.csv", logits, labels)
    np.testing.assert_allclose(read.probabilities, softmax(logits, -1), atol=1e-7)
    assert read.class_names == NAMES and read.files[2] == "2.png" and read.probabilities.dtype == np.float32
    assert (read.correct.argmax(-1) == labels).all() and read.one_label and not read.multi_label
    assert (read.right == (logits.argmax(-1) == labels)).all() and read.activation == "softmax"
    assert read.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels, logits.argmax(-1)))
    several = [[1, 0, 1], [0, 0, 0], [0, 0, 1]]
    read = table(tmp_path / "x.csv", logits[:3], np.array(several), "sigmoid")
    assert read.multi_label and read.correct.tolist() == several
    np.testing.assert_allclose(read.probabilities, expit(logits[:3]), atol=1e-7)


def test_intervals_over_groups(tmp_path):
    """Against SciPy's bootstrap of the groups; where images of a group agree, a much wider one than Wilson's."""
    labels, groups = np.arange(120) % 3, {f"{i}.png": f"patient {i // 6}" for i in range(120)}
    right = np.repeat(RANDOM.random(20) < 0.7, 6)
    logits = 9 * np.eye(3)[np.where(right, labels, (labels + 1) % 3)]
    with write_predictions(tmp_path / "x.csv", NAMES, "softmax", groups) as rows:
        rows.add(list(groups), logits, labels)
    read = read_predictions(tmp_path / "x.csv")
    assert read.groups == list(groups.values()) and read.class_names == NAMES
    accuracy, images = read.describe_accuracy()
    assert images == f"{right.sum()} of 120 images in 20 groups"
    low, high = map(float, re.search(r"\[(.*), (.*)\]", accuracy).groups())
    means = right.reshape(20, 6).mean(-1)
    expected = bootstrap((means,), np.mean, method="percentile", n_resamples=9_999, rng=1).confidence_interval
    np.testing.assert_allclose([low, high], [100 * expected.low, 100 * expected.high], atol=5.1)  # steps of 1 / 20
    assert high - low > 1.8 * np.diff([100 * end for end in wilson_interval(int(right.sum()), 120)])
    with write_predictions(tmp_path / "x.csv", NAMES, "softmax", groups) as rows:
        rows.add(list(groups), np.eye(3)[labels], labels)
    low, high = (f"{100 * end:.1f}" for end in wilson_interval(20, 20))
    accuracy, images = read_predictions(tmp_path / "x.csv").describe_accuracy()
    assert accuracy == f"100.0 % [{low}, {high}]" and images == "120 of 120 images in 20 groups"
    with write_predictions(tmp_path / "x.csv", ["group", "x"], "softmax") as rows:
        rows.add(["a"], np.eye(2)[:1], [1])
    assert read_predictions(tmp_path / "x.csv").class_names == ["group", "x"]


def test_the_interval_of_thousands_of_groups(tmp_path):
    """Against SciPy, of groups of one to three images; in a part of the memory of a number for each group and draw."""
    sizes = RANDOM.integers(1, 4, 3000)
    names = np.repeat(np.arange(len(sizes)), sizes)
    groups = {f"{i}.png": str(name) for i, name in enumerate(names)}
    right = np.repeat(RANDOM.random(len(sizes)) < 0.8, sizes)
    with write_predictions(tmp_path / "x.csv", NAMES, "softmax", groups) as rows:
        rows.add(list(groups), np.eye(3)[np.where(right, 0, 1)], np.zeros(len(names), int))
    read = read_predictions(tmp_path / "x.csv")
    read.accuracy_interval()
    tracemalloc.start()
    interval = read.accuracy_interval()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    hits = np.bincount(names, right)

    def accuracy(hits, sizes, axis):
        return hits.sum(axis) / sizes.sum(axis)

    options = {"paired": True, "vectorized": True, "method": "percentile", "n_resamples": 2_000, "batch": 100, "rng": 1}
    expected = bootstrap((hits, sizes), accuracy, **options).confidence_interval
    np.testing.assert_allclose(interval, (expected.low, expected.high), atol=2e-3)
    assert peak < 2e7


@pytest.mark.parametrize(
    "text,words",
    [
        ("", "an empty file"),
        ("file,label\na,b\n", "no table of predictions"),
        ("file,label,prediction,cat,dog\n", "no predictions"),
        ("file,label,prediction,cat,dog,cat\na,cat,cat,0.5,0.5,0\n", "two columns of the class 'cat'"),
        ("file,label,prediction,cat,dog\na,cat,cat,0.5\n", "Line 2"),
        ("file,label,prediction,cat,dog\na,cat,cat,0.5,1.5\n", "Line 2"),
        ("file,label,prediction,cat,dog\na,cat,cat,0.2,0.8\n", "Line 2 .* prediction"),
        ("file,label,prediction,cat,dog\na,cow,cat,0.5,0.5\n", "cow"),
        ("file,label,prediction,cat,dog\na,cat,cat,1,0\na,cat,cat,1,0\n", "1 files in several lines: a"),
        ("file;label;prediction;cat;dog\na;cat;cat;1;0\n", "separated by commas"),
        ("file,label,prediction,Löwe,dog\na,dog,dog,0.5,0.5\n", "not UTF-8 .*Excel"),
    ],
)
def test_other_files_are_refused(text, words, tmp_path):
    (tmp_path / "x.csv").write_text(text, "latin-1")
    with pytest.raises(ValueError, match=words):
        read_predictions(tmp_path / "x.csv")


def test_the_difference_of_two_models(tmp_path):
    labels = RANDOM.integers(0, 3, 120)
    logits = RANDOM.normal(size=(120, 3)) + 1.2 * np.eye(3)[labels]
    other = logits + RANDOM.normal(size=(120, 3)) + 0.6 * np.eye(3)[labels]
    order = RANDOM.permutation(120)
    first = table(tmp_path / "1.csv", logits, labels)
    second = table(tmp_path / "2.csv", other[order], labels[order], files=[f"{i}.png" for i in order])
    result = compare_predictions(first, second)
    right = [logits.argmax(-1) == labels, other.argmax(-1) == labels]
    only = (right[0] & ~right[1]).sum(), (right[1] & ~right[0]).sum()
    assert result.right == (right[0].sum(), right[1].sum()) and result.only == only and min(only) > 2
    assert result.p_value == pytest.approx(binomtest(int(only[0]), int(sum(only)), 0.5).pvalue, rel=1e-9)
    assert result.agreement == (logits.argmax(-1) == other.argmax(-1)).mean()
    difference = right[1].astype(float) - right[0]
    assert result.difference == pytest.approx(difference.mean())
    expected = bootstrap((difference,), np.mean, method="percentile", n_resamples=9_999, rng=1).confidence_interval
    np.testing.assert_allclose(result.interval, (expected.low, expected.high), atol=0.01)
    assert compare_predictions(first, first).p_value == 1 and compare_predictions(first, first).interval[1] > 0.01


def test_tables_of_other_images_are_not_compared(tmp_path):
    logits, labels = RANDOM.normal(size=(4, 3)), np.arange(4) % 3
    first = table(tmp_path / "1.csv", logits, labels)
    for change, words in (
        (lambda: table(tmp_path / "2.csv", logits[:3], labels[:3]), "3.png"),
        (lambda: table(tmp_path / "2.csv", logits, labels[::-1]), "labels"),
    ):
        with pytest.raises(ValueError, match=words):
            compare_predictions(first, change())


def test_a_comparison_over_groups():
    """All differences are in two of twenty groups: no evidence, although eight images differ (SciPy's bootstrap)."""
    groups = np.repeat(np.arange(20), 4)
    correct = np.arange(80)[:, None] % 2 == np.arange(2)
    right = np.where(correct, 0.9, 0.1).astype("float32")
    worse = np.where((groups < 2)[:, None], 1 - right, right)
    tables = [
        Predictions([f"{i}.jpg" for i in range(80)], ["a", "b"], correct, values, [str(group) for group in groups])
        for values in (right, worse)
    ]
    result = compare_predictions(*tables)
    of_groups = np.where(np.arange(20) < 2, -1.0, 0.0)
    expected = bootstrap((of_groups,), np.mean, method="percentile", rng=0, n_resamples=20_000)
    assert result.difference == pytest.approx(-0.1) and result.p_value is None
    assert result.interval == pytest.approx(expected.confidence_interval, abs=0.01) and result.interval[1] == 0
