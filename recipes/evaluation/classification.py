"""Evaluation of a classifier on a split of a dataset: also ReaL labels, ObjectNet, variants of ImageNet."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import keras
import numpy as np

from keras_vit.class_names import describe_difference, imagenet_class_names
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.models.classification import check_no_projection, known_names
from keras_vit.progress import Progress
from keras_vit.recipes.data import ImageDataset, count_examples, decoded_images
from keras_vit.recipes.data.image_dataset import decoded_for
from keras_vit.recipes.data.model_classes import check_classifier, unlabeled, with_model_classes
from keras_vit.recipes.evaluation.classification_metrics import ClassificationMetrics, MultiLabelMetrics
from keras_vit.recipes.evaluation.imagenet_variants import (
    map_to_imagenet,
    overlapping_images,
    scored_classes,
    variant_images,
    variant_labels,
)
from keras_vit.recipes.evaluation.logits import activation_of, logits_of_images
from keras_vit.recipes.evaluation.predictions import write_predictions
from keras_vit.recipes.recipe import Data


@dataclass(frozen=True)
class ClassificationReport:
    """The metrics of a classifier, see `ClassificationMetrics`; of one with `multi_label`, see `MultiLabelMetrics`.

    Attributes:
        summary: "images", "counted", "top1", "top5", "negative_log_likelihood" (not of the 21,843 sigmoids of
            ImageNet-21k), "calibration_error", "balanced_accuracy", "macro_f1" and "majority"; or
            "images", "counted", "mean_average_precision". With a reference also "agreement".
        per_class: One row per class that has images: "class", "images", "accuracy", "confused_with", "confused"; or
            "class", "images", "average_precision".
        reliability: One row per bin of confidence: "above", "to", "images", "confidence", "accuracy"; none with
            `multi_label`.
        class_names: Names of the C outputs that count, in their order.
        confusion_matrix: (C, C) int64, images of class i predicted as class j; None with several correct classes per
            image, and above 1,000 classes.
        preprocessing: How the images were prepared.
        skipped: Number of images that cannot be decoded; they do not count.
    """

    summary: dict[str, float]
    per_class: list[dict]
    reliability: list[dict]
    class_names: list[str]
    confusion_matrix: np.ndarray | None
    preprocessing: Preprocessing
    skipped: int


def evaluate_classifier(
    model: keras.Model,
    dataset: ImageDataset,
    split: str = "test",
    *,
    batch_size: int = 64,
    objectnet_mapping: str | Path | None = None,
    imagenet_variant: Literal["v2", "a", "r", "sketch"] | None = None,
    max_corrupt: float = Data.max_corrupt,
    reference: keras.Model | None = None,
    predictions: str | Path | None = None,
    verbose: bool = False,
) -> ClassificationReport:
    """Evaluates a classifier. Images are prepared by `model.preprocessing`; every image counts once.

        evaluate_classifier(keras_vit.load("x.keras"), open_dataset(Data("imagenet2012_real")), "validation")

    With several correct classes per image, as in "imagenet2012_real", the top-1 prediction is right if it is one of
    them, and images without a correct class do not count.

    Args:
        model: A classifier of keras_vit with the classes of the dataset, see `with_model_classes`; or an exported one,
            from `keras_vit.export.exported.opening.open_exported`.
        dataset: From `open_dataset`.
        split: Such as "test" or "validation[:10%]".
        batch_size: Number of images at a time.
        objectnet_mapping: The folder "mappings" of ObjectNet. The dataset is then ObjectNet's images, a folder per
            class, and the model a classifier of ImageNet-1k.
        imagenet_variant: The dataset is this variant of ImageNet, and the model a classifier of ImageNet-1k, of whose
            outputs only those of the variant's classes count, see `keras_vit.recipes.evaluation.imagenet_variants`.
        max_corrupt: Largest allowed fraction of images that cannot be decoded, which are skipped.
        reference: Another classifier with the same outputs, such as the model that was exported: "agreement" is the
            fraction of the images with the same most likely class.
        predictions: A CSV file to write: a line for each image with its file, label, prediction and the probabilities
            of all classes, see `keras_vit.recipes.evaluation.predictions`.
        verbose: Show the progress on standard error.

    Raises:
        ValueError: The model's head is a projection, as CLIP's; `objectnet_mapping` and `imagenet_variant` are both
            set, the model has different classes, the split is unknown, empty or unlabeled, too many images are corrupt,
            or the classes or the mapping do not match.
        OSError: The mapping cannot be read.
    """
    check_classifier(model)
    if reference is not None:
        _check_reference(model, reference)
    if objectnet_mapping and imagenet_variant:
        raise ValueError("Set either objectnet_mapping or imagenet_variant. Received: both")
    if predictions and (objectnet_mapping or imagenet_variant):
        raise ValueError("Predictions are of all classes of a model: omit objectnet_mapping and imagenet_variant.")
    if not objectnet_mapping and not imagenet_variant:
        dataset = with_model_classes(dataset, model)
    dataset = decoded_for(dataset, model.preprocessing)
    read: list[int] = []
    files: list[str] = []  # of a batch
    batches = _labeled_batches(dataset, split, batch_size, max_corrupt, read, files)
    scored: np.ndarray | slice = slice(None)  # outputs
    if imagenet_variant:
        scored = scored_classes(imagenet_variant)
        batches = variant_images(batches, variant_labels(dataset.class_names, imagenet_variant))
        names = [imagenet_class_names()[number][1] for number in scored]
        _check_imagenet_1k(model, f"imagenet_variant={imagenet_variant!r}")
    elif objectnet_mapping:
        targets = map_to_imagenet(dataset.class_names, objectnet_mapping)
        batches = overlapping_images(batches, targets, batch_size)
        names = [words for _, words in imagenet_class_names()]
        _check_imagenet_1k(model, "ObjectNet")
    else:
        names = list(dataset.class_names)
    activation = activation_of(model)
    metrics = _metrics(model, dataset, len(names), activation)
    predict, agreed = logits_of_images(model), []
    refer = reference and logits_of_images(reference)
    progress = Progress(f"Evaluation on {split}", count_examples(dataset, split), "images") if verbose else None
    table = write_predictions(Path(predictions), names, activation, dataset.groups) if predictions else nullcontext()
    with table as rows:
        for images, labels in batches:
            if progress:
                progress.add(len(images))
            logits = predict(images)[:, scored]
            metrics.update(logits, labels)
            if rows:
                rows.add(files, logits, labels)
            if refer:
                agreed += (logits.argmax(-1) == refer(images)[:, scored].argmax(-1)).tolist()
    if progress:
        progress.end()
    summary = metrics.summary()
    if refer:
        summary["agreement"] = float(np.mean(agreed))
    skipped = count_examples(dataset, split) - sum(read)
    per_class = metrics.per_class(names)
    if isinstance(metrics, MultiLabelMetrics):
        return ClassificationReport(summary, per_class, [], names, None, model.preprocessing, skipped)
    reliability, matrix = metrics.reliability(), metrics.confusion_matrix()
    return ClassificationReport(summary, per_class, reliability, names, matrix, model.preprocessing, skipped)


def _check_reference(model, reference):
    """Raises ValueError unless two classifiers have the same outputs."""
    check_no_projection(reference)
    names = [known_names(classifier) for classifier in (reference, model)]
    difference = describe_difference(*names) if all(names) else ""
    if difference or reference.num_classes != model.num_classes:
        received = difference or f"{reference.num_classes} classes there, {model.num_classes} here"
        raise ValueError(f"Expected a reference with the classes of {model.name} (here). Received: {received}")


def _check_imagenet_1k(model, what):
    if model.num_classes != 1000:
        raise ValueError(
            f"{what} requires a classifier of the 1,000 classes of ImageNet. Received: {model.name} with "
            f"{model.num_classes or 'no'} classes."
        )


def _metrics(model, dataset, num_classes, activation):
    if not getattr(model, "multi_label", False):
        return ClassificationMetrics(num_classes, activation)
    if not dataset.multi_label:
        raise ValueError(
            f"{model.name} has several labels per image (multi_label), but {dataset.name!r} has one. Expected a "
            "dataset such as csv:/path; see docs/data.md."
        )
    return MultiLabelMetrics(num_classes)


def _labeled_batches(
    dataset, split, batch_size, max_corrupt, read: list[int], files: list[str]
) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
    """Yields the images that can be decoded; appends the size of each batch to `read`. `files` are their names."""
    for images, labels in decoded_images(dataset, split, batch_size, max_corrupt, names=files):
        if labels.ndim == 1 and labels.min() < 0:
            raise unlabeled(dataset, split)
        read.append(len(images))
        yield images, labels
