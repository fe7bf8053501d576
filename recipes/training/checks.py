"""Checks of a recipe that require the devices, the dataset or the disk. Each reports all that it finds.

Recipes check their own fields when they are created, and recipe_checks.py has what requires neither.
"""

import os
from functools import partial

import keras
import tensorflow as tf

from keras_vit.recipes.data import ImageDataset, count_training_images
from keras_vit.recipes.data.image_dataset import count_nonempty
from keras_vit.recipes.data.model_classes import (
    check_labels,
    check_several_classes,
    check_trained_classes,
    labels_are_cheap,
)
from keras_vit.recipes.distributed import JaxDevices, Strategy
from keras_vit.recipes.recipe import Recipe, Run
from keras_vit.recipes.recipe_checks import check_length, check_validations
from keras_vit.recipes.recipe_errors import RecipeError, check_all
from keras_vit.recipes.training.accumulation import check_batch_size


def check_recipe(recipe: Recipe, strategy: Strategy):
    """Checks a recipe against the devices, without reading data, building a model or touching the run's folder."""
    check_all(
        lambda: check_backend(recipe),
        lambda: check_precision(recipe.run, _has_tpus(strategy)),
        lambda: check_batch_size(
            recipe.data.batch_size, strategy.num_replicas_in_sync, recipe.optimizer.accumulation_steps
        ),
        lambda: _check_repeats(recipe.data, strategy.num_replicas_in_sync),
        lambda: _check_folder(recipe.run, strategy),
    )


def _has_tpus(strategy) -> bool:
    if isinstance(strategy, JaxDevices):
        return strategy.names[0].startswith("tpu")
    return isinstance(strategy, tf.distribute.TPUStrategy)


def check_backend(recipe: Recipe):
    """Raises ValueError for distillation with Keras on JAX, and for what only JAX splits with TensorFlow."""
    with_jax = keras.backend.backend() == "jax"
    if recipe.run.shard_optimizer and not with_jax:
        raise RecipeError(
            "Only Keras on JAX splits the optimizer's state: start the command with KERAS_BACKEND=jax, or leave a copy "
            f"on each device. The backend is KERAS_BACKEND={keras.backend.backend()}.",
            {"run.shard_optimizer": True},
            {"run.shard_optimizer": False},
        )
    if with_jax and recipe.has_teacher:
        raise ValueError(
            "Distillation requires Keras on TensorFlow, which runs the teacher. Received: KERAS_BACKEND=jax. Start it "
            "with KERAS_BACKEND=tensorflow."
        )


def check_precision(run: Run, is_tpu: bool):
    """Raises ValueError for mixed_float16 on a TPU."""
    if is_tpu and run.precision == "mixed_float16":
        raise RecipeError(
            "TPUs compute in bfloat16, which requires no loss scaling.",
            {"run.precision": run.precision},
            {"run.precision": "mixed_bfloat16"},
        )


def check_data(recipe: Recipe, dataset: ImageDataset, total_steps: int):
    """Checks splits, labels and number of images against the recipe; `total_steps` is the length of the run.

    There must be at least `batch_size` training images, so that no image is drawn twice for a batch. Evaluation splits
    may be smaller.
    """
    check_all(
        lambda: check_length(recipe, total_steps),
        lambda: check_validations(recipe, total_steps),
        lambda: _check_loss(recipe, dataset),
        lambda: _check_classes(recipe, dataset),
        *(partial(_check_split, recipe, dataset, field, split) for field, split in _splits(recipe).items()),
    )
    train, *others = splits = list(_splits(recipe).values())
    if labels_are_cheap(dataset, splits):
        check_trained_classes(dataset, train, set(others) - {train})


def count_images(recipe: Recipe, dataset: ImageDataset) -> dict[str, int]:
    """Number of images in each split of a recipe; in the training split, those that `labels_per_class` selects."""
    counts = {split: count_nonempty(dataset, split) for split in _splits(recipe).values()}
    train = recipe.data.train_split
    return {**counts, train: count_training_images(recipe.data, dataset, train)}


def _splits(recipe) -> dict[str, str]:
    """The splits that a recipe uses, by field."""
    fields = ["train_split", *(["validation_split", "test_split"] if recipe.has_labels else [])]
    return {field: split for field in fields if (split := getattr(recipe.data, field))}


def _check_split(recipe, dataset, field, split):
    try:
        count_nonempty(dataset, split)
    except ValueError as error:
        others = [None] if field == "validation_split" else [x for x in dataset.splits if x != recipe.data.train_split]
        use = [{f"data.{field}": name} for name in others[:3]]
        raise RecipeError(str(error), {f"data.{field}": split}, use) from error
    if recipe.has_labels:
        check_labels(dataset, split)
    if field == "train_split":
        _check_batch(recipe, dataset)


def _check_loss(recipe, dataset):
    if recipe.has_labels and dataset.multi_label and recipe.loss == "softmax":
        raise RecipeError(
            f"Images of {dataset.name!r} have any number of labels, but the softmax is for one each.",
            {"loss": "softmax"},
            {"loss": "sigmoid"},
        )
    if recipe.has_labels and recipe.class_weight and dataset.multi_label:
        raise RecipeError(
            f"Weights of classes are for one label per image, but images of {dataset.name!r} have any number.",
            {"class_weight": recipe.class_weight},
            {"class_weight": None},
        )
    if recipe.has_teacher and dataset.multi_label:
        raise ValueError(
            f"A teacher's probabilities add up to 1, but images of {dataset.name!r} have any number of labels. Train "
            "without a teacher."
        )


def _check_classes(recipe, dataset):
    if recipe.has_labels and recipe.loss == "softmax":
        check_several_classes(dataset)


def _check_batch(recipe, dataset):
    split, labels = recipe.data.train_split, recipe.data.labels_per_class
    total = count_nonempty(dataset, split)
    if labels and labels * len(dataset.class_names) > total:
        classes = len(dataset.class_names)
        raise RecipeError(
            f"The split {split!r} of {recipe.data.dataset!r} has only {total:,} images of {classes:,} classes.",
            {"data.labels_per_class": labels},
            {"data.labels_per_class": max(1, total // classes)},
        )
    count = count_training_images(recipe.data, dataset, split)
    if count < recipe.data.batch_size:
        raise RecipeError(
            f"A batch cannot be larger than the {count:,} training images of {recipe.data.dataset!r}.",
            {"data.batch_size": recipe.data.batch_size},
            {"data.batch_size": count},
        )


def _check_folder(run, strategy):
    if run.folder is not None:
        _check_reachable(run.folder, strategy)
    elif run.tensorboard:
        raise RecipeError(
            "TensorBoard's files require a folder.",
            {"run.tensorboard": True, "run.folder": None},
            [{"run.folder": "runs/x"}, {"run.tensorboard": False}],
        )


def _check_reachable(folder, strategy):
    """A remote TPU's own machine writes the checkpoints, so a local folder would be on the disk of that machine."""
    name = os.environ.get("TPU_NAME", "")
    if isinstance(strategy, tf.distribute.TPUStrategy) and name not in ("", "local") and "://" not in folder:
        raise RecipeError(
            f"The machines of the TPU {name!r} cannot write checkpoints to a local folder, only to a bucket. On the "
            "TPU's own machine, set the environment variable TPU_NAME=local.",
            {"run.folder": folder},
            {"run.folder": "gs://BUCKET/FOLDER"},
        )


def _check_repeats(data, replicas):
    """Each machine mixes its part of a batch, where copies of one image must not be all there is to mix."""
    repeats = data.augment.repeats
    least = 2 * repeats * replicas
    if repeats > 1 and data.augment.mixes and data.batch_size < least:
        raise RecipeError(
            f"Mixup and CutMix mix different images, but the {repeats} copies of an image are side by side: a batch "
            f"on {replicas} replicas requires at least {least} images.",
            {"data.batch_size": data.batch_size, "data.augment.repeats": repeats},
            {"data.batch_size": least},
        )
