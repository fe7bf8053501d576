"""The report on a classifier's predictions: one HTML file, made from their table. n images, C classes."""

import html
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from scipy.special import logit

from keras_vit.atomic_write import write_file
from keras_vit.recipes.evaluation.classification_metrics import ClassificationMetrics, MultiLabelMetrics
from keras_vit.recipes.evaluation.predictions import Comparison, Predictions
from keras_vit.recipes.runs.logs import LOG, read_log
from keras_vit_cli.commands.report import sections
from keras_vit_cli.commands.report.gallery import Gallery
from keras_vit_cli.page import Section, cards, details, message, package_versions, page, pair, section

TINY = 1e-12  # a probability whose logarithm is finite


def write_report(
    path: Path,
    title: str,
    predictions: Predictions,
    *,
    notes: Sequence[str] = (),
    skipped: Sequence[str] = (),
    run: str | Path | None = None,
    model=None,
    pixel_range: tuple[int, int] | None = None,
    comparison: tuple[Comparison, tuple[str, str]] | None = None,
):
    """Writes the report.

    Args:
        path: The file, which is replaced.
        title: Whose predictions these are.
        predictions: The table. Images are shown whose files are local.
        notes: Warnings, such as of copies.
        skipped: Files that could not be decoded.
        run: The folder of the training, whose log.csv adds curves.
        model: The Keras model, for the evidence; or None.
        pixel_range: Of the images, see `keras_vit.Preprocessing`.
        comparison: With another model, and the names of both.
    """
    metrics = _metrics(predictions)
    gallery = Gallery(predictions, sections.image_lists(predictions), pixel_range)
    parts = [message(note) for note in [*notes, *gallery.notes()]]
    parts.append(cards(_numbers(predictions, metrics)))
    if run and (curves := sections.learning_curves(read_log(os.path.join(run, LOG)))):
        parts.append(pair(*(section(*curve) for curve in curves)))
    parts += [section(*each) for each in _sections(predictions, metrics)]
    if comparison:
        parts.append(section(*sections.comparison(*comparison)))
    parts += [section(*each) for each in gallery.sections(model)]
    if skipped:
        names = details(f"{len(skipped):,} files", "<pre>{}</pre>".format(html.escape("\n".join(skipped))))
        parts.append(section("Skipped", "Files that cannot be decoded and do not count.", names))
    files = resources.files("keras_vit_cli.commands.report")
    text = page(
        title,
        f"{len(predictions.files):,} images, {len(predictions.class_names):,} classes.",
        "\n".join(parts),
        "Intervals: 95 %. Without groups (--group) they are Wilson's, which hold for independent images, not for "
        "several of one object or person. With groups they are the bootstrap's over these, and not narrower. "
        + package_versions("vit-for-keras", "keras"),
        style=files.joinpath("report.css").read_text(),
        script=files.joinpath("report.js").read_text(),
        data=gallery.data(),
    )
    write_file(path, text)


def _metrics(predictions) -> ClassificationMetrics | MultiLabelMetrics:
    """The metrics of `keras-vit evaluate`, from probabilities: the logarithms of a softmax are its logits."""
    probabilities = np.clip(predictions.probabilities.astype("float64"), TINY, 1)
    count = len(predictions.class_names)
    sigmoid = predictions.activation == "sigmoid"
    several, one = MultiLabelMetrics(count), ClassificationMetrics(count, predictions.activation)
    metrics = several if predictions.multi_label else one
    logits = logit(np.clip(probabilities, None, 1 - TINY)) if sigmoid else np.log(probabilities)
    metrics.update(logits, predictions.correct)
    return metrics


def _numbers(predictions, metrics) -> dict[str, str]:
    """The numbers at the top."""
    summary = metrics.summary()
    if predictions.multi_label:
        return {"mean average precision": f"{summary['mean_average_precision']:.1%}"}
    accuracy, images = predictions.describe_accuracy()
    numbers = {f"top-1, 95 % interval; {images}": accuracy}
    if "majority" in summary:
        largest = predictions.class_names[predictions.correct.sum(0).argmax()]
        numbers["balanced accuracy, the mean of the recalls"] = f"{summary['balanced_accuracy']:.1%}"
        numbers[f"always {largest!r} would be right"] = f"{summary['majority']:.1%}"
    return numbers


def _sections(predictions, metrics) -> list[Section]:
    if predictions.multi_label:
        made = [sections.labels(predictions)]
    else:
        matrix, summary = metrics.confusion_matrix(), metrics.summary()
        made = [] if matrix is None else [part(predictions, matrix) for part in (sections.confusions, sections.classes)]
        made.append(sections.reliability(metrics.reliability(), summary["calibration_error"]))
    thresholds = sections.threshold_curves(predictions)
    return [*made, thresholds] if thresholds else made
