"""Checks of a recipe before anything slow starts. Messages name fields as Python does: `optimizer.warmup_steps`.

Each reports all that it finds, one line for each, with the values that would fit.
`keras-vit` prints these names as the flags of its command line, see cli/flags.py.
"""

import os
from functools import partial

import keras
import tensorflow as tf

from keras_vit.recipes.check_all import check_all
from keras_vit.recipes.data import ImageDataset, count_training_images, has_labels
from keras_vit.recipes.data.image_dataset import count_nonempty
from keras_vit.recipes.data.model_classes import check_several_classes, unlabeled
from keras_vit.recipes.distributed.jax_devices import JaxDevices
from keras_vit.recipes.distributed.strategy import Strategy
from keras_vit.recipes.recipe import Distillation, Recipe, Run, SelfSupervised, Supervised
from keras_vit.recipes.training.accumulation import check_batch_size
from keras_vit.recipes.training.field_checks import check_fields, check_length
from keras_vit.recipes.training.losses import build_loss


def check_recipe(recipe: Recipe, strategy: Strategy):
    """Checks a recipe's fields, without reading data, building a model or touching the run's folder.

    Raises:
        ValueError: Fields that exclude each other, see `check_fields`, or the strategy, such as a batch size that is
            not divisible by the replicas; a missing teacher.
    """
    check_fields(recipe)
    check_all(
        lambda: check_backend(recipe),
        lambda: check_precision(recipe.run, _has_tpus(strategy)),
        lambda: check_batch_size(
            recipe.data.batch_size, strategy.num_replicas_in_sync, recipe.optimizer.accumulation_steps
        ),
        lambda: _check_repeats(recipe.data, strategy.num_replicas_in_sync),
        lambda: build_loss(recipe) if isinstance(recipe, Supervised) else None,
        lambda: _check_folder(recipe.run, strategy),
    )


def _has_tpus(strategy) -> bool:
    if isinstance(strategy, JaxDevices):
        return strategy.names[0].startswith("tpu")
    return isinstance(strategy, tf.distribute.TPUStrategy)


def check_backend(recipe: Recipe):
    """Raises ValueError for distillation with Keras on JAX."""
    if keras.backend.backend() == "jax" and isinstance(recipe, Distillation):
        raise ValueError(
            "Distillation requires Keras on TensorFlow, which runs the teacher. Received: KERAS_BACKEND=jax. Start it "
            "with KERAS_BACKEND=tensorflow."
        )


def check_precision(run: Run, is_tpu: bool):
    """Raises ValueError for mixed_float16 on a TPU."""
    if is_tpu and run.precision == "mixed_float16":
        raise ValueError(
            "TPUs compute in bfloat16, which requires no loss scaling. Received: run.precision='mixed_float16'. Use "
            "run.precision='mixed_bfloat16'."
        )


def check_data(recipe: Recipe, dataset: ImageDataset, total_steps: int):
    """Checks splits, labels and number of images against the recipe; `total_steps` is the length of the run.

    There must be at least `batch_size` training images, so that no image is drawn twice for a batch. Evaluation splits
    may be smaller.

    Raises:
        ValueError: A split is missing, has no labels or too few images; or images have several labels, for which the
            loss is not.
    """
    check_all(
        lambda: check_length(recipe, total_steps),
        lambda: _check_loss(recipe, dataset),
        lambda: _check_classes(recipe, dataset),
        *(partial(_check_split, recipe, dataset, field, split) for field, split in _splits(recipe).items()),
    )


def count_images(recipe: Recipe, dataset: ImageDataset) -> dict[str, int]:
    """Number of images in each split of a recipe; in the training split, those that `labels_per_class` selects."""
    counts = {split: count_nonempty(dataset, split) for split in _splits(recipe).values()}
    train = recipe.data.train_split
    return {**counts, train: count_training_images(recipe.data, dataset, train)}


def check_labels(dataset: ImageDataset, split: str):
    """Raises ValueError for a split whose labels are not public, such as the test split of ImageNet."""
    if not has_labels(dataset, split):
        raise unlabeled(dataset, split)


def _splits(recipe) -> dict[str, str]:
    """The splits that a recipe uses, by field."""
    fields = ["train_split", *([] if isinstance(recipe, SelfSupervised) else ["validation_split", "test_split"])]
    return {field: split for field in fields if (split := getattr(recipe.data, field))}


def _check_split(recipe, dataset, field, split):
    try:
        count_nonempty(dataset, split)
    except ValueError as error:
        others = [None] if field == "validation_split" else [x for x in dataset.splits if x != recipe.data.train_split]
        known = " or ".join(f"data.{field}={name!r}" for name in others[:3])
        raise ValueError(f"{str(error).rstrip('.')}. Use {known}." if known else str(error)) from error
    if not isinstance(recipe, SelfSupervised):
        check_labels(dataset, split)
    if field == "train_split":
        _check_batch(recipe, dataset)


def _check_loss(recipe, dataset):
    if isinstance(recipe, Supervised) and dataset.multi_label and recipe.loss == "softmax":
        raise ValueError(
            f"Images of {dataset.name!r} have any number of labels, but the softmax is for one each. Received: "
            "loss='softmax'. Use loss='sigmoid'."
        )
    if isinstance(recipe, Distillation) and dataset.multi_label:
        raise ValueError(
            f"A teacher's probabilities add up to 1, but images of {dataset.name!r} have any number of labels. Train "
            "without a teacher."
        )


def _check_classes(recipe, dataset):
    if isinstance(recipe, Supervised) and recipe.loss == "softmax":
        check_several_classes(dataset)


def _check_batch(recipe, dataset):
    split, labels = recipe.data.train_split, recipe.data.labels_per_class
    total = count_nonempty(dataset, split)
    if labels and labels * len(dataset.class_names) > total:
        raise ValueError(
            f"data.labels_per_class={labels} is more than {split!r} has: {total:,} images of "
            f"{len(dataset.class_names):,} classes."
        )
    count = count_training_images(recipe.data, dataset, split)
    if count < recipe.data.batch_size:
        raise ValueError(
            f"data.batch_size={recipe.data.batch_size} is more than the {count:,} training images of "
            f"{recipe.data.dataset!r}. Use at most data.batch_size={count}."
        )


def _check_folder(run, strategy):
    if run.folder is not None:
        _check_reachable(run.folder, strategy)
    elif run.tensorboard:
        raise ValueError("run.tensorboard=True requires a folder: set run.folder.")


def _check_reachable(folder, strategy):
    """A remote TPU's own machine writes the checkpoints, so a local folder would be on the disk of that machine."""
    name = os.environ.get("TPU_NAME", "")
    if isinstance(strategy, tf.distribute.TPUStrategy) and name not in ("", "local") and "://" not in folder:
        raise ValueError(
            f"The machines of the TPU {name!r} cannot write checkpoints to the local folder {folder!r}. Use a bucket, "
            "run.folder='gs://BUCKET/FOLDER'; on the TPU's own machine, set the environment variable TPU_NAME=local."
        )


def _check_repeats(data, replicas):
    """Each machine mixes its part of a batch, where copies of one image must not be all there is to mix."""
    augment = data.augment
    least = 2 * augment.repeats * replicas
    if augment.repeats > 1 and (augment.mixup_alpha or augment.cutmix_alpha) and data.batch_size < least:
        raise ValueError(
            f"Mixup and CutMix mix different images, and data.augment.repeats={augment.repeats} puts copies side by "
            f"side. Received: data.batch_size={data.batch_size} for {replicas} replicas. Use at least "
            f"data.batch_size={least}."
        )
