"""Trains and evaluates the models of recipes. The training loop is in training/loop.py."""

import gc
from functools import partial

import keras
import numpy as np

from keras_vit.recipes.checkpoints.run_folder import prepare_run_folder
from keras_vit.recipes.checkpoints.run_identity import check_same_data, locked_folder
from keras_vit.recipes.data import (
    ImageDataset,
    count_examples,
    open_dataset,
    training_batches,
    training_pixels,
)
from keras_vit.recipes.data.image_dataset import report_data_errors
from keras_vit.recipes.data.model_classes import (
    balanced_weights,
    check_classifier,
    check_labels,
    check_same_classes,
    class_counts,
    with_model_classes,
)
from keras_vit.recipes.data.pipeline import weight_classes
from keras_vit.recipes.distributed import Strategy, Workers, shard_evaluation, strategy_of
from keras_vit.recipes.recipe import Data, SelfSupervised, Supervised
from keras_vit.recipes.self_supervised import SelfSupervisedModel, compile_self_supervised, self_supervised_batches
from keras_vit.recipes.training import loop
from keras_vit.recipes.training.checks import check_data, count_images
from keras_vit.recipes.training.keras_internals import weights_kept
from keras_vit.recipes.training.losses import Sigmoid, Softmax
from keras_vit.recipes.training.metrics import TopK, training_metrics
from keras_vit.recipes.training.model import compile_classifier, compile_for_evaluation
from keras_vit.recipes.training.replacements import NOTHING_REPLACED, Replacements, fitting_loss

__all__ = ["count_steps", "evaluate", "pretrain", "train"]


def pretrain(
    recipe: SelfSupervised, callbacks=(), *, optimizer=None, augment=None
) -> tuple[SelfSupervisedModel, loop.History]:
    """Pre-training without labels: masked patches, or a masked autoencoder.

    Args:
        callbacks: Additional Keras callbacks. With an EMA, it is the weights that they see when an epoch ends.
        optimizer, augment: See `train`.

    Returns:
        The trained model, whose `vit` is the model without a head, and the history of `fit`.

    Raises:
        ValueError, OSError: The recipe cannot be trained; raised before training starts.
        FloatingPointError: Gradients or weights are not finite.
    """
    replacements = Replacements(optimizer, augment=augment)
    with locked_folder(recipe) as strategy:
        return fit_unlabeled(recipe, strategy, callbacks, replacements)


def fit_unlabeled(recipe: SelfSupervised, strategy: Strategy, callbacks=(), replacements=NOTHING_REPLACED):
    """`pretrain` in a folder that is locked already, under its strategy."""
    dataset = _prepare(recipe, strategy)
    check_data(recipe, dataset, recipe.total_steps)
    with strategy.scope():
        model = compile_self_supervised(recipe, replacements)

    def batches(start_step, host):
        pixels = training_pixels(recipe.data, dataset, recipe.run.seed, start_step, host, replacements.augment)
        return self_supervised_batches(pixels, model.vit.patch_size, recipe, start_step, host)

    replaced = replacements.fields(model.optimizer, model.vit)
    return model, loop.fit(model, recipe, recipe.total_steps, dataset, batches, callbacks, replaced)


def train(
    recipe: Supervised, start=None, callbacks=(), *, optimizer=None, loss=None, augment=None
) -> tuple[keras.Model, loop.History]:
    """Trains a classifier. docs/own_recipe.md has examples of all arguments.

    A resumed run requires the `optimizer`, `loss` and `augment` of its beginning, which run.json names.

    Args:
        start: A model to start from; by default, the recipe's weights or, without any, random weights.
        callbacks: Additional Keras callbacks. With an EMA, it is the weights that they see when an epoch ends.
        optimizer: Class of Keras optimizers with an `update_step`, or function that creates one, instead of
            `recipe.optimizer.name`. It is called with the recipe's `learning_rate` (a schedule), `weight_decay`,
            `global_clipnorm`, `use_ema` and, with an EMA, `ema_momentum`; its step is that of `ReplicaInvariant`.
        loss: Keras loss of logits, name, or function (labels, logits) -> (B,), instead of `recipe.loss`. Labels are
            (B, C) float32: zeros and ones, fractions after mixup. A loss that fails with these gets (B,) int64.
        augment: Function (image, seed) -> image of TensorFlow operations, or a Keras layer, after the recipe's own
            augmentation: of (H, W, 3) float32 in [0, 255], with a (2,) int32 seed for `tf.image.stateless_random_...`.
            Keras's random layers draw from that seed, too. Mixup, CutMix and erasing come later.

    Returns:
        The trained model with the names of the dataset's classes, compiled for `evaluate`, and the history of `fit`.

    Raises:
        ValueError, OSError: The recipe cannot be trained; raised before training starts.
        FloatingPointError: Gradients or weights are not finite.
    """
    replacements = Replacements(optimizer, loss, augment)
    with locked_folder(recipe, start) as strategy:
        return fit_supervised(recipe, strategy, start, callbacks, replacements)


def fit_supervised(
    recipe: Supervised, strategy: Strategy, start=None, callbacks=(), replacements: Replacements = NOTHING_REPLACED
):
    """`train` in a folder that is locked already, under its strategy."""
    dataset = _prepare(recipe, strategy)
    total_steps, num_classes = count_steps(recipe, dataset), len(dataset.class_names)
    check_data(recipe, dataset, total_steps)
    with strategy.scope():
        model, classifier = compile_classifier(
            recipe, num_classes, total_steps, start, dataset.multi_label, replacements
        )
    _check_classes(recipe, dataset, model, classifier, recipe.weights if start is None else None)
    classifier.class_names = dataset.class_names  # names that a model cannot have raise before the training
    batches = _weighted_batches(recipe, dataset, replacements.augment)
    replaced = replacements.fields(model.optimizer, classifier)
    history = loop.fit(model, recipe, total_steps, dataset, batches, callbacks, replaced)
    if model is not classifier:  # distillation
        with strategy.scope():
            compile_for_evaluation(classifier, recipe, num_classes, replacements)
    return classifier, history


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
    dataset = with_model_classes(open_dataset(data), model)
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


def count_steps(recipe: Supervised, dataset: ImageDataset) -> int:
    """Steps of a run: `total_steps`, or those of `total_epochs`."""
    if recipe.total_steps is not None:
        return recipe.total_steps
    images = count_images(recipe, dataset)[recipe.data.train_split]
    return round(recipe.total_epochs * images / recipe.data.batch_size)  # type: ignore[operator] # see check_plan


def _weighted_batches(recipe, dataset, augment):
    """Function (start_step, host) -> training batches, with weights of the images if classes have weights."""
    batches = partial(training_batches, recipe.data, dataset, recipe.run.seed, augment=augment)
    if recipe.class_weight is None:
        return batches
    counts = class_counts(dataset, recipe.data.train_split)
    if recipe.data.labels_per_class:
        counts = np.full_like(counts, recipe.data.labels_per_class)
    weights = balanced_weights(counts)
    return lambda start_step, host: weight_classes(batches(start_step, host), weights)


def _check_classes(recipe, dataset, model, classifier, weights):
    """Raises ValueError if a kept head or the teacher is known to have other classes than the dataset."""
    role, fix = "keep_head=True keeps the head of", "set keep_head=False for a new head"
    check_same_classes(dataset, classifier.class_names, weights, role, fix)  # None for a new head
    if recipe.has_teacher:
        check_same_classes(dataset, model.teacher.class_names, recipe.teacher, "The teacher is", "use another teacher")


def _prepare(recipe, strategy):
    """Prepares the folder, frees models that nothing refers to, opens the dataset and seeds all random generators."""
    for _ in range(2):  # a model refers to itself; without it `release_gradients` frees its weights and moments
        gc.collect()
    workers = Workers(strategy)
    if recipe.run.folder is not None:
        prepare_run_folder(recipe, workers.chief)
    dataset = open_dataset(recipe.data)
    check_same_data(recipe, dataset, workers)
    keras.utils.set_random_seed(recipe.run.seed)
    return dataset
