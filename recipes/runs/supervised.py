"""Training of classifiers, with a teacher or without: models, batches, metrics."""

import math
import sys

import keras
import numpy as np

from keras_vit.intervals import binomial_p_value, percent
from keras_vit.recipes.data import count_examples, open_dataset, training_batches
from keras_vit.recipes.data.image_dataset import report_data_errors
from keras_vit.recipes.data.model_classes import (
    balanced_weights,
    check_classifier,
    check_labels,
    check_same_classes,
    class_counts,
    labels_are_cheap,
    with_model_classes,
)
from keras_vit.recipes.data.pipeline import weight_classes
from keras_vit.recipes.keras_internals import weights_kept
from keras_vit.recipes.processes.strategies import shard_evaluation, strategy_of
from keras_vit.recipes.recipe import Data, Distillation, Supervised
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.runs.folder import check_unchanged
from keras_vit.recipes.runs.open_run import OpenRun
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.recipes.training.callbacks import check_finite_metrics
from keras_vit.recipes.training.distillation import build_distillation
from keras_vit.recipes.training.losses import Sigmoid, Softmax, build_loss, set_head_bias
from keras_vit.recipes.training.metrics import TopK, training_metrics
from keras_vit.recipes.training.model import build_classifier, optimizer_arguments
from keras_vit.recipes.training.replacements import NOTHING_REPLACED, fitting_loss
from keras_vit.weights.files import MODEL


class ClassifierTraining:
    """What a run with labels trains; made before anything is trained.

    Attributes:
        model: The compiled model to fit: the classifier, or with a teacher one around it until the end of the training.
        result: The classifier, with the names of the classes.
    """

    def __init__(self, run: OpenRun):
        self.run = run
        recipe: Supervised = run.recipe  # type: ignore[assignment] # it has labels
        dataset = run.data.dataset
        self.num_classes = len(dataset.class_names)
        with run.strategy.scope():
            self.model, self.result = compile_classifier(
                recipe, self.num_classes, run.data.total_steps, run.start, dataset.multi_label, run.replacements
            )
        self._check_classes()
        self.result.class_names = dataset.class_names  # names that a model cannot have raise before the training
        self.class_weights = self._class_weights()

    def _check_classes(self):
        """Raises ValueError if a kept head or the teacher is known to have other classes than the dataset."""
        recipe, dataset = self.run.recipe, self.run.data.dataset
        weights = recipe.weights if self.run.start is None else None
        role, fix = "keep_head=True keeps the head of", "set keep_head=False for a new head"
        check_same_classes(dataset, self.result.class_names, weights, role, fix)  # None for a new head
        if recipe.has_teacher:
            names = self.model.teacher.class_names
            check_same_classes(dataset, names, recipe.teacher, "The teacher is", "use another teacher")

    def _class_weights(self):
        """(C,), or None if all images count equally."""
        recipe = self.run.recipe
        if recipe.class_weight is None:
            return None
        counts = self.run.data.class_counts(recipe.data.train_split)
        if recipe.data.labels_per_class:
            counts = np.full_like(counts, recipe.data.labels_per_class)
        return balanced_weights(counts)

    def batches(self, start_step: int, host: tuple[int, int]):
        """One host's part of the training batches from a step on, with weights of the images if classes have some."""
        recipe, augment = self.run.recipe, self.run.replacements.augment
        batches = training_batches(recipe.data, self.run.data.dataset, recipe.run.seed, start_step, host, augment)
        return batches if self.class_weights is None else weight_classes(batches, self.class_weights)

    def finish(self):
        """Frees the teacher, if there is one, and compiles the classifier for `evaluate`."""
        if self.model is not self.result:
            self.model = self.result
            with self.run.strategy.scope():
                compile_for_evaluation(self.result, self.run.recipe, self.num_classes, self.run.replacements)

    def metrics(self, history) -> dict[str, float]:
        """Metrics of the test set; without one those of the last epoch, "training_loss" and others.

        An error says that the model is saved already.
        """
        recipe, folder = self.run.recipe, self.run.folder
        data, split = recipe.data, recipe.data.test_split
        if split is None:
            last = {name: values[-1] for name, values in history.items() if name.startswith(("loss", "top", "mean_"))}
            return {f"training_{name}": value for name, value in last.items() if math.isfinite(value)}
        try:
            dataset = open_dataset(data)  # again: it may have changed during the training
            if folder:
                check_unchanged(folder, RunData(recipe, dataset))
            metrics = _evaluate(self.result, data, with_model_classes(dataset, self.result), split)
        except (ValueError, OSError) as error:
            if not folder:
                raise
            raise RecipeError(
                f"{error} The training is complete: its model is {folder}/{MODEL}. To resume repeats only the "
                "evaluation.",
                use={"run.resume": True},
            ) from error
        check_finite_metrics(metrics, f"the model on the split {split!r}")
        if "mean_average_precision" not in metrics:
            _warn_of_chance(metrics, dataset, split)
        skipped = int(history.get("nonfinite_steps", [0])[-1])
        return metrics | ({"nonfinite_steps": skipped} if skipped else {})


def compile_classifier(
    recipe: Supervised,
    num_classes: int,
    total_steps: int,
    start=None,
    multi_label: bool = False,
    replacements=NOTHING_REPLACED,
):
    """Returns the compiled model to fit, and the classifier in it: the same model, or the student of a distillation."""
    student = build_classifier(recipe, num_classes, start)
    student.multi_label = multi_label
    if recipe.head_bias:
        set_head_bias(student, recipe.head_bias)
    model = build_distillation(student, recipe) if isinstance(recipe, Distillation) else student
    model.compile(
        **optimizer_arguments(recipe, total_steps, student, replacements),
        **_loss_and_metrics(recipe, num_classes, multi_label, replacements),
        steps_per_execution=recipe.run.steps_per_execution,
    )
    return model, student


def compile_for_evaluation(classifier, recipe: Supervised, num_classes: int, replacements=NOTHING_REPLACED):
    """Compiles a classifier for `evaluate`, without an optimizer."""
    classifier.compile(**_loss_and_metrics(recipe, num_classes, classifier.multi_label, replacements))


def _loss_and_metrics(recipe, num_classes, multi_label, replacements):
    own = replacements.loss is not None
    loss = replacements.build_loss(recipe, num_classes, multi_label) if own else build_loss(recipe)
    # Weighted, so that the images that pad the last batch of an evaluation do not count.
    return {"loss": loss, "weighted_metrics": training_metrics(num_classes, multi_label)}


def evaluate(model, data: Data, split: str) -> dict[str, float]:
    """Metrics of a classifier on a split, however it was compiled; every image that can be decoded counts once.

    "loss", that of `compile`, or without one the cross-entropy; "top1" and, with more than 5 classes, "top5" accuracy,
    in [0, 1]; with several labels per image
    "mean_average_precision", see `MeanAveragePrecision`; "images": number of images that count in accuracies, which are
    those that can be decoded and have a label.

    Raises:
        ValueError: The model is no classifier of keras_vit with the classes of the dataset, the split is missing or has
            no labels, its files are damaged, or more than `data.max_corrupt` of its images are corrupt.
    """
    check_classifier(model)
    return _evaluate(model, data, with_model_classes(open_dataset(data), model), split)


def _evaluate(model, data, dataset, split) -> dict[str, float]:
    check_labels(dataset, split)
    model = _with_recipes_metrics(model, dataset)
    batches, steps = shard_evaluation(strategy_of(model), data, dataset, split)
    with report_data_errors(dataset, split), weights_kept(model):
        metrics = model.evaluate(batches, steps=steps, return_dict=True, verbose=0)
    compiled = {metric.name: metric for group in model.metrics for metric in getattr(group, "metrics", ())}
    # Each image has the weight (steps x batch size) / images of the split, see `zero_weight_corrupt`.
    weight = steps * data.batch_size / count_examples(dataset, split)
    images = decoded = round(compiled["top1"].total_weight() / weight)
    if dataset.multi_label:  # where images without any of the classes have a loss
        decoded = round(compiled["mean_average_precision"].total_weight() / weight)
    if decoded:
        metrics["loss"] *= count_examples(dataset, split) / decoded
    return {**metrics, "images": images}


def _with_recipes_metrics(model, dataset):
    """The model if a recipe compiled it, else one around it with the metrics of recipes."""
    metrics = (model.get_compile_config() or {}).get("weighted_metrics") or ()
    is_plain = all(
        getattr(type(model), step) is getattr(keras.Model, step) for step in ("test_step", "compute_metrics")
    )
    if is_plain and any(isinstance(metric, dict) and metric["class_name"] == TopK.__name__ for metric in metrics):
        return model
    loss = getattr(model, "loss", None)
    if not isinstance(loss, (str, keras.losses.Loss)) and not callable(loss):  # several, or none
        loss = Sigmoid() if dataset.multi_label else Softmax()
    with strategy_of(model).scope():
        evaluated = keras.Sequential([model])
        evaluated.compile(
            loss=fitting_loss(loss, model.num_classes, dataset.multi_label),
            weighted_metrics=training_metrics(model.num_classes, dataset.multi_label),
        )
    return evaluated


def _warn_of_chance(metrics, dataset, split):
    """Warns unless more images are right than by always predicting the largest class (exact binomial test, 5 %)."""
    num_classes, images = len(dataset.class_names), metrics["images"]
    right = round(metrics["top1"] * images)  # top1 is a float32
    if num_classes == 1 or not images:
        return
    counts = class_counts(dataset, split) if labels_are_cheap(dataset, [split]) else np.ones(num_classes)
    largest, total = counts.max(), counts.sum()
    if binomial_p_value(right, images, largest / total) <= 0.05:
        return
    is_balanced = largest * num_classes == total
    guess = "guessing" if is_balanced else f"always predicting {dataset.class_names[counts.argmax()]!r}"
    rare = "class_weight 'balanced' gives images of rare classes a higher weight in training. "
    print(
        f"Warning: top-1 {percent(right, images)}, is not better than {guess}, {100 * largest / total:.1f} %. The test "
        "images are too few to tell, or the training was too short, or diverged: look at the loss in log.csv, and "
        f"lower optimizer.learning_rate if it rose. {rare if 2 * largest * num_classes > 3 * total else ''}"
        "keras-vit evaluate --per-class shows the classes.",
        file=sys.stderr,
    )
