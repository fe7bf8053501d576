"""The sections of a report on predictions: title, text and HTML of each. n images, C classes.

Buttons with data-images="KEY" open the images of a key, see `image_lists`.
"""

import html
from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from keras_vit.inspect import figures
from keras_vit.recipes.evaluation.classification_metrics import BINS
from keras_vit.recipes.evaluation.predictions import Comparison, Predictions
from keras_vit_cli.page import Section, details, figure_image, pair, table

GALLERY = '<p id="status" role="status"></p>\n<div id="gallery"></div>'  # of the images behind buttons
MOST_CELLS = 30  # classes of a matrix; of more, pairs are listed
MOST_PAIRS = 50
MOST_CURVES = 8  # classes with curves and thresholds, those with the most images
THRESHOLDS = np.arange(1, 20) / 20
COLORS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be185d", "#475569")


def image_lists(predictions: Predictions) -> dict[str, list[int]]:
    """The rows of the images behind each button: of one label "true-predicted", else "missed-" or "false-class"."""
    lists: dict[str, list[int]] = {}
    if predictions.multi_label:
        chosen = predictions.probabilities >= 0.5
        for kind, errors in (("missed", predictions.correct & ~chosen), ("false", chosen & ~predictions.correct)):
            for number in range(len(predictions.class_names)):
                lists[f"{kind}-{number}"] = np.flatnonzero(errors[:, number]).tolist()
    elif predictions.one_label:
        for row, pair in enumerate(zip(predictions.correct.argmax(-1).tolist(), predictions.predicted.tolist())):
            lists.setdefault("{}-{}".format(*pair), []).append(row)
    return lists


def learning_curves(log: Sequence[Mapping[str, str]]) -> list[Section]:
    """Loss, accuracy and learning rate of the lines of a log.csv."""
    topics = {
        "Loss": ("loss", "val_loss"),
        "Accuracy, %": ("top1", "val_top1", "mean_average_precision", "val_mean_average_precision"),
        "Learning rate": ("learning_rate",),
    }
    drawn = []
    for title, columns in topics.items():
        series = {}
        for column in columns:
            points = [(int(float(line["step"])), float(line[column])) for line in log if line.get(column)]
            if points:
                style = ("-", figures.ACCENT) if column.startswith("val_") else ("--", figures.MUTED)
                name = "validation" if column.startswith("val_") else "training"
                series[name if title != "Learning rate" else "rate"] = (*zip(*points), style)
        if series:
            drawn.append((title, "", figure_image(figures.curves(series, title, percent="%" in title), title)))
    return drawn


def confusions(predictions: Predictions, matrix: np.ndarray) -> Section:
    """The confusion matrix or, of many classes, the most frequent confusions; its buttons fill the gallery below.

    Args:
        matrix: Images of class i (row) that were predicted as class j (column); (C, C) integers. Classes without images
            and predictions are omitted.
    """
    names = predictions.class_names
    used = np.flatnonzero(matrix.any(0) | matrix.any(1)).tolist()

    def cell(i, j) -> str:
        if not matrix[i, j]:
            return ""
        label = f"{matrix[i, j]} images of {names[i]} predicted as {names[j]}"
        kind = "right" if i == j else "wrong"
        return f'<span class="{kind}">{_button(f"{i}-{j}", f"{matrix[i, j]:,}", label)}</span>'

    if len(used) <= MOST_CELLS:
        text = "True classes in rows, predicted classes in columns. Select a number to see its images."
        rows = [[html.escape(names[i]), *(cell(i, j) for j in used)] for i in used]
        head = ["true \\ predicted", *(names[j] for j in used)]
        return "Confusion matrix", text, table(head, rows, "Confusion matrix", id="confusion") + GALLERY
    wrong = matrix * ~np.eye(len(names), dtype=bool)
    order = np.argsort(-wrong, axis=None, kind="stable")[: min(MOST_PAIRS, np.count_nonzero(wrong))]
    pairs = zip(*np.unravel_index(order, wrong.shape))
    rows = [[html.escape(names[i]), html.escape(names[j]), cell(i, j)] for i, j in pairs]
    text = f"The {len(rows)} most frequent of {np.count_nonzero(wrong):,}. Select a number to see its images."
    return "Confusions", text, table(["true", "predicted", "images"], rows, "Confusions", id="confusion") + GALLERY


def classes(predictions: Predictions, matrix: np.ndarray) -> Section:
    """Recall, precision, F1 and average precision of each class that has images or is predicted."""
    images, predicted, right = matrix.sum(1), matrix.sum(0), np.diag(matrix)
    rows = []
    for number in np.flatnonzero(images + predicted):
        recall = "-"
        if images[number]:
            low, high = predictions.interval_of(predictions.correct[:, number])
            recall = f"{right[number] / images[number]:.1%} [{100 * low:.1f}, {100 * high:.1f}]"
        precision = f"{right[number] / predicted[number]:.1%}" if predicted[number] else "-"
        f1 = f"{2 * right[number] / (images[number] + predicted[number]):.1%}"
        average = _average_precision(predictions, number)
        rows.append(
            [html.escape(predictions.class_names[number]), f"{images[number]:,}", recall, precision, f1, average]
        )
    text = (
        "Recall (sensitivity) is the part of a class's images that are predicted right, with its 95 % interval; "
        "precision the part of those predicted as it that are. Average precision is the area under the curve of both."
    )
    head = ["class", "images", "recall", "precision", "F1", "average precision"]
    return "Classes", text, table(head, rows, "Metrics of each class", id="classes")


def labels(predictions: Predictions) -> Section:
    """The table of several labels: each class by itself, at a probability of 0.5."""
    rows = []
    for number, name in enumerate(predictions.class_names):
        correct, scores = predictions.correct[:, number], predictions.probabilities[:, number]
        chosen, has_both = scores >= 0.5, 0 < correct.sum() < len(correct)
        errors = []
        for kind, wrong in (("missed", correct & ~chosen), ("false", chosen & ~correct)):
            count = int(wrong.sum())
            errors.append(
                _button(f"{kind}-{number}", f"{count:,}", f"{count} images, {kind}, of {name}") if count else "0"
            )
        area = f"{roc_auc_score(correct, scores):.3f}" if has_both else "-"
        average = _average_precision(predictions, number)
        rows.append([html.escape(name), f"{correct.sum():,}", *errors, average, area])
    text = "At a probability of 0.5: images of a class that are missed, others that are taken for it. Select a number."
    head = ["class", "images", "missed", "false", "average precision", "area under ROC"]
    return "Labels", text, table(head, rows, "Metrics of each label", id="confusion") + GALLERY


def reliability(rows: Sequence[Mapping], error: float) -> Section:
    """The diagram of confidence and accuracy, of `ClassificationMetrics.reliability`."""
    filled = [row for row in rows if row["images"]]
    points = [[row[name] for row in filled] for name in ("confidence", "accuracy")]
    series = {"perfect": ([0, 1], [0, 1], ("--", figures.MUTED)), "model": (*points, ("-", figures.ACCENT))}
    text = (
        "Accuracy of the images by the probability of their predicted class. Below the diagonal the model is too sure, "
        f"above it not sure enough. The mean distance, the expected calibration error ({BINS} bins), is {error:.1%}."
    )
    return (
        "Reliability",
        text,
        figure_image(figures.curves(series, "accuracy", xlabel="confidence"), "Reliability diagram"),
    )


def threshold_curves(predictions: Predictions) -> Section | None:
    """ROC and precision-recall of two classes, or of the largest of several labels; None where they do not apply."""
    counts = predictions.correct.sum(0)
    possible = [i for i in np.argsort(-counts, kind="stable").tolist() if 0 < counts[i] < len(predictions.files)]
    if predictions.multi_label:
        numbers = possible[:MOST_CURVES]
    elif predictions.one_label and len(predictions.class_names) == 2:
        numbers = possible[-1:]  # the rarer class is that which one looks for
    else:
        return None
    roc, precisions, tables = {}, {}, []
    for number, color in zip(numbers, COLORS):
        name, correct = predictions.class_names[number], predictions.correct[:, number]
        scores = predictions.probabilities[:, number]
        false, true, _ = roc_curve(correct, scores, drop_intermediate=True)
        precision, recall, _ = precision_recall_curve(correct, scores, drop_intermediate=True)
        roc[f"{name}, area {roc_auc_score(correct, scores):.3f}"] = (false, true, ("-", color))
        label = f"{name}, average precision {average_precision_score(correct, scores):.3f}"
        precisions[label] = (recall, precision, ("-", color))
        tables.append(details(f"Thresholds of {name}", _thresholds(name, correct, scores)))
    if not roc:
        return None
    text = (
        "Sensitivity and specificity at each threshold of the probability. A threshold that is chosen on these images "
        "looks better on them than on others: choose it on validation images."
    )
    drawn = [
        figure_image(figures.curves(roc, "sensitivity", xlabel="1 - specificity"), "ROC curve"),
        figure_image(figures.curves(precisions, "precision", xlabel="recall"), "Precision-recall curve"),
    ]
    return "Thresholds", text, "\n".join([pair(*drawn), *tables])


def comparison(result: Comparison, names: tuple[str, str]) -> Section:
    """Two models on the same images, or a model and its exported file."""
    rows = [
        [html.escape(name), f"{right:,} of {result.images:,}", f"{only:,}"]
        for name, right, only in zip(names, result.right, result.only)
    ]
    head = ["model", "right", "right alone"]
    return "Comparison", describe_comparison(result), table(head, rows, "Comparison", id="comparison")


def describe_comparison(result: Comparison) -> str:
    """Agreement, difference and its significance, as sentences."""
    low, high = (100 * end for end in result.interval)
    differ = low > 0 or high < 0 if result.p_value is None else result.p_value <= 0.05
    test = "" if result.p_value is None else f" McNemar's exact test: p = {result.p_value:.2g}."
    return (
        f"Both predict the same class for {result.agreement:.1%} of {result.images:,} images. Accuracy of the second "
        f"minus that of the first: {100 * result.difference:+.1f} points [{low:+.1f}, {high:+.1f}] (95 %, bootstrap "
        f"over {'groups' if result.p_value is None else 'images'}).{test} They "
        f"{'differ' if differ else 'do not differ more than by chance'}."
    )


def _thresholds(name, correct, scores) -> str:
    rows = []
    for threshold in THRESHOLDS:
        chosen = scores >= np.float32(threshold)
        counts = [
            int(part.sum()) for part in (correct & chosen, correct & ~chosen, ~correct & chosen, ~correct & ~chosen)
        ]
        hit, missed, false, rejected = counts
        fractions = (hit / (hit + missed), rejected / (rejected + false), hit / (hit + false) if hit + false else None)
        shown = ("-" if fraction is None else f"{fraction:.1%}" for fraction in fractions)
        rows.append([f"{threshold:.2f}", *shown, *(f"{count:,}" for count in (missed, false))])
    head = ["probability at least", "sensitivity", "specificity", "precision", "missed", "false"]
    return table(head, rows, f"Thresholds of {name}")


def _average_precision(predictions, number) -> str:
    correct = predictions.correct[:, number]
    return f"{average_precision_score(correct, predictions.probabilities[:, number]):.1%}" if correct.any() else "-"


def _button(key, text, label) -> str:
    return f'<button type="button" data-images="{key}" aria-label="{html.escape(label)}">{text}</button>'
