"""Losses and metrics of probabilities are refused, with one of logits that equals scikit-learn's on probabilities."""

import re
from functools import partial

import keras
import numpy as np
import pytest
from keras import losses, metrics, ops
from sklearn.metrics import accuracy_score, confusion_matrix, fbeta_score, jaccard_score, precision_score, recall_score

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(300, 4)).astype("float32")
LABELS = (RNG.random((300, 4)) < 0.4).astype("float32")
# Probabilities above 0.5 of several labels: what a metric of probabilities is called with, and its value.
BY_SCIKIT_LEARN = [
    ("binary_accuracy", lambda y, p: accuracy_score(y.ravel(), p.ravel())),
    (metrics.Precision(), partial(precision_score, average="micro")),
    (metrics.Recall(class_id=2), lambda y, p: recall_score(y[:, 2], p[:, 2])),
    (metrics.F1Score("macro", threshold=0.5), partial(fbeta_score, beta=1, average="macro")),
    (metrics.FBetaScore("micro", beta=2.0, threshold=0.5), partial(fbeta_score, beta=2, average="micro")),
    (metrics.TruePositives(), lambda y, p: confusion_matrix(y.ravel(), p.ravel())[1, 1]),
    (metrics.FalsePositives(), lambda y, p: confusion_matrix(y.ravel(), p.ravel())[0, 1]),
    (metrics.BinaryIoU([1]), lambda y, p: jaccard_score(y.ravel(), p.ravel())),
]


def compiled(model, loss=None, **options):
    model.compile("sgd", loss or losses.BinaryCrossentropy(from_logits=True), **options)


def refusal(model, metric) -> str:
    with pytest.raises(ValueError, match="logits") as refused:
        compiled(model, metrics=[["accuracy", {"a": metric}]] if model.num_classes > 1 else [metric])
    return str(refused.value)


@pytest.fixture
def model(toy):
    return toy(num_classes=4, depth=1, multi_label=True)


@pytest.mark.parametrize("metric,expected", BY_SCIKIT_LEARN)
def test_the_metric_that_the_error_names(model, metric, expected):
    name, arguments = re.search(r"keras\.metrics\.(\w+)\((.*?)\)", refusal(model, metric)).groups()
    config = {} if isinstance(metric, str) else metric.get_config()
    fixed = getattr(metrics, name).from_config({**config, **eval(f"dict({arguments})")})
    compiled(model, metrics=[fixed])
    fixed.update_state(LABELS, LOGITS)
    assert float(fixed.result()) == pytest.approx(expected(LABELS, LOGITS > 0), abs=1e-6)


def test_the_accuracy_of_one_class(toy):
    for word in ("accuracy", "Acc", "binary_accuracy"):
        assert f"BinaryAccuracy(name='{word}', threshold=0)" in refusal(toy(num_classes=1, depth=1), word)


def rounded(labels, outputs):
    return ops.mean(ops.cast(ops.round(outputs) == labels, "float32"))


class Half(metrics.Metric):
    """The number of right outputs above 0.5; its probe must change neither this nor the seed."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.total, self.calls = self.add_variable((), "zeros"), 0

    def update_state(self, labels, outputs, sample_weight=None):
        self.calls += 1
        self.total.assign_add(ops.sum(ops.where(outputs > 0.5, labels, 0.0)) + 0 * keras.random.uniform(()))

    def result(self):
        return self.total


@pytest.mark.parametrize(
    "metric",
    [
        metrics.AUC,
        metrics.AUC(multi_label=True, num_labels=4),
        metrics.AUC(curve="PR"),
        type("OwnAUC", (metrics.AUC,), {})(),
        metrics.SensitivityAtSpecificity(0.97),
        metrics.SpecificityAtSensitivity(0.02),
        metrics.PrecisionAtRecall(0.1),
        metrics.RecallAtPrecision(0.9),
        metrics.FalseNegatives(thresholds=[0.2, 0.7]),
        metrics.TrueNegatives(),
        metrics.KLDivergence(),
        "sparse_categorical_crossentropy",
        metrics.CategoricalCrossentropy(),
        metrics.MeanMetricWrapper(rounded),
        rounded,
    ],
)
def test_metrics_of_probabilities(model, metric):
    refusal(model, metric)


def test_a_probe_leaves_no_trace(model):
    metric, lazy = Half(), metrics.F1Score()
    keras.utils.set_random_seed(1)
    refusal(model, metric)
    compiled(model, metrics=[lazy])
    draws = [float(keras.random.uniform(()))]
    keras.utils.set_random_seed(1)
    assert draws == [float(keras.random.uniform(()))] and metric.calls == metric.total == 0 and not lazy.variables


class OfSigmoid(metrics.Precision):
    def update_state(self, labels, outputs, sample_weight=None):
        return super().update_state(labels, ops.sigmoid(outputs), sample_weight)


class Required(metrics.Mean):
    def __init__(self, required, **kwargs):
        super().__init__(**kwargs)


@pytest.mark.parametrize(
    "metric",
    [
        "accuracy",
        metrics.SparseCategoricalAccuracy(),
        metrics.TopKCategoricalAccuracy(2),
        metrics.OneHotIoU(4, [0, 1]),
        metrics.F1Score("macro"),
        metrics.Precision(top_k=1),
        metrics.AUC(from_logits=True),
        metrics.BinaryAccuracy(threshold=-0.3),
        metrics.BinaryCrossentropy(from_logits=True),
        metrics.MeanAbsoluteError(),
        metrics.CosineSimilarity(),
        metrics.R2Score(),
        "hinge",
        OfSigmoid(),
        OfSigmoid(thresholds=0.6),
        metrics.MeanMetricWrapper(lambda y, p: ops.mean(ops.cast(ops.sigmoid(p) > 0.7, "float32"))),
        Required(1),
        "a name that Keras reports",
    ],
)
def test_metrics_of_logits(toy, model, metric):
    compiled(model, metrics={"a": [metric]}, weighted_metrics=[metric])
    if metric != "accuracy":
        compiled(toy(num_classes=1, depth=1), metrics=[metric])


@pytest.mark.parametrize(
    "loss",
    [
        "ce",
        "kl_divergence",
        losses.categorical_crossentropy,
        losses.BinaryCrossentropy(),
        losses.BinaryFocalCrossentropy(),
        partial(losses.sparse_categorical_crossentropy),  # without a configuration, as of other libraries
        lambda y, p: losses.sparse_categorical_crossentropy(y, p),
        [lambda y, p: losses.categorical_crossentropy(y, p)],
        losses.CategoricalGeneralizedCrossEntropy(),
        losses.Dice(),
        losses.Tversky(),
        "poisson",
        lambda y, p: 1 - (2 * ops.sum(y * p) + 1) / (ops.sum(y) + ops.sum(p) + 1),
    ],
)
def test_losses_of_probabilities(model, loss):
    with pytest.raises(ValueError, match="outputs are logits"):
        compiled(model, loss)


@pytest.mark.parametrize(
    "loss",
    [
        "mse",
        "cosine_similarity",
        "categorical_hinge",
        losses.CategoricalFocalCrossentropy(from_logits=True),
        partial(losses.sparse_categorical_crossentropy, from_logits=True),
        lambda y, p: losses.categorical_crossentropy(y, ops.softmax(p)),
        lambda y, p: 0.0 * ops.sum(p),
        lambda y, p: ops.sum(y["maps"] - p),  # of labels that only the user's data has
    ],
)
def test_losses_of_logits(toy, loss):
    for num_classes in (1, 3):
        compiled(toy(num_classes=num_classes, depth=1), loss)
    compiled(toy(num_classes=0, depth=1), "categorical_crossentropy")  # features, which another layer may take


def test_a_regression(toy):
    model = toy(num_classes=1, depth=1, projection=True)
    for loss in ("mse", "mae", "poisson", "cosine_similarity"):
        compiled(model, loss, metrics=["msle", metrics.BinaryAccuracy()])
    for loss in ("msle", "binary_crossentropy"):
        with pytest.raises(ValueError, match="head.bias.assign"):  # of max(outputs, 0), whose gradient is 0
            compiled(model, loss)
    model.head.bias.assign([3.0])
    compiled(model, "msle")
    images, values = np.zeros((2, 16, 16, 3), "float32"), np.array([[5.0], [6.0]])
    before = model.test_on_batch(images, values)
    model.fit(images, values, epochs=3, verbose=0)
    assert model.test_on_batch(images, values) < before
