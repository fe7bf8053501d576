"""What cannot work in a run, said before anything slow."""

import os

import tensorflow as tf

from keras_vit.recipes.data import count_examples, count_training_images, has_labels
from keras_vit.recipes.distributed.workers import Workers
from keras_vit.recipes.recipe import Distillation, MaskedPatch, Supervised
from keras_vit.recipes.training.accumulation import check_batch_size
from keras_vit.recipes.training.model import BIT
from keras_vit.recipes.training.run_folder import prepare_run_folder


def check_recipe(recipe, strategy: tf.distribute.Strategy):
    """Raises ValueError for what a recipe's fields show to be wrong; reads no data and builds no model.

    A batch that does not go into replicas and parts, a length that is missing or given twice, a warm-up as long as the
    run, a teacher that is not there. The run's folder is claimed here, see `prepare_run_folder`.
    """
    _check_kind(recipe)
    _check_counts(recipe)
    check_batch_size(recipe.data.batch_size, strategy.num_replicas_in_sync, recipe.optimizer.accumulation_steps)
    if isinstance(recipe, Supervised) and (recipe.total_steps is None) == (recipe.total_epochs is None):
        raise ValueError(
            "Say how long to train by either total_steps or total_epochs, the other being None. Received: "
            f"total_steps={recipe.total_steps}, total_epochs={recipe.total_epochs}"
        )
    if recipe.total_steps is not None:
        _check_length(recipe, recipe.total_steps)
    if isinstance(recipe, Distillation):
        _check_teacher(recipe)
    if recipe.run.folder is not None:
        _check_reach(recipe.run.folder, strategy)
        prepare_run_folder(recipe, Workers(strategy).chief)
    elif recipe.run.tensorboard:
        raise ValueError("TensorBoard's files need a place. Name a run.folder, or leave run.tensorboard off.")


def check_data(recipe, dataset, total_steps: int):
    """Raises ValueError if a split is missing, has too few images or no labels; `total_steps` are the run's updates.

    A batch holds an image once, so there must be as many training images. Splits to evaluate on may be smaller.
    """
    _check_length(recipe, total_steps)
    counts = count_images(recipe, dataset)
    empty = [split for split, count in counts.items() if not count]
    if empty:
        raise ValueError(f"There are no images in {', '.join(empty)} of {recipe.data.dataset!r}.")
    if not isinstance(recipe, MaskedPatch):
        for split in counts:
            check_labels(dataset, split)
    count = counts[recipe.data.train_split]
    if count < recipe.data.batch_size:
        raise ValueError(
            f"A batch of {recipe.data.batch_size} is more than the {count:,} training images of "
            f"{recipe.data.dataset!r}. Take a batch_size of at most {count}."
        )


def count_images(recipe, dataset) -> dict[str, int]:
    """Images of each split that a recipe uses, with training on `labels_per_class` only if it says so."""
    data = recipe.data
    splits = [data.train_split]
    if not isinstance(recipe, MaskedPatch):
        splits += [data.validation_split, data.test_split] if data.validation_split else [data.test_split]
    counts = {split: count_examples(dataset, split) for split in splits}
    return {**counts, data.train_split: count_training_images(data, dataset, data.train_split)}


def check_labels(dataset, split):
    """Raises ValueError if a split is one whose labels were never published, as the test split of ImageNet."""
    if not has_labels(dataset, split):
        raise ValueError(
            f"The images of {split!r} of {dataset.name} have no labels to train or evaluate on. Choose another "
            "split, such as 'validation'."
        )


def _check_reach(folder, strategy):
    """The machine that has the TPU writes checkpoints itself, with its own disk where a folder is local."""
    name = os.environ.get("TPU_NAME", "")
    if isinstance(strategy, tf.distribute.TPUStrategy) and name not in ("", "local") and "://" not in folder:
        raise ValueError(
            f"The machines of the TPU {name!r} cannot write checkpoints into the folder {folder!r} of this one. Name a "
            "bucket: run.folder=gs://BUCKET/FOLDER, or on the TPU's own machine set TPU_NAME=local."
        )


def _check_counts(recipe):
    counts = {"data": ("batch_size", "image_size", "shuffle_images"), "optimizer": ("accumulation_steps",)}
    counts["run"] = (
        "steps_per_execution",
        "epoch_steps",
        "checkpoint_steps",
        "keep_checkpoints",
        "max_nonfinite_steps",
    )
    for part, names in counts.items():
        for name in names:
            if getattr(getattr(recipe, part), name) < 1:
                raise ValueError(f"{part}.{name} must be at least 1. Received: {getattr(getattr(recipe, part), name)}")
    if recipe.data.labels_per_class is not None and recipe.data.labels_per_class < 1:
        raise ValueError(f"data.labels_per_class must be at least 1. Received: {recipe.data.labels_per_class}")
    epoch, execution = recipe.run.epoch_steps, recipe.run.steps_per_execution
    if epoch > execution and epoch % execution:
        raise ValueError(
            f"run.epoch_steps={epoch} is no multiple of run.steps_per_execution={execution}: every epoch would be "
            f"compiled twice. Take epoch_steps={epoch // execution * execution}."
        )


def _check_length(recipe, total_steps):
    if total_steps < 1 or recipe.optimizer.warmup_steps >= total_steps:
        raise ValueError(
            f"A warm-up of {recipe.optimizer.warmup_steps:,} updates leaves nothing of a run of {total_steps:,}. "
            "Shorten optimizer.warmup_steps or train for longer."
        )


def _check_kind(recipe):
    """What this kind of recipe cannot do."""
    is_bit = recipe.architecture.variant.startswith(BIT) and not getattr(recipe, "weights", None)
    if is_bit and isinstance(recipe, MaskedPatch | Distillation):
        raise ValueError(
            f"A {type(recipe).__name__} needs a Vision Transformer: a BiT has no patches to mask and no distillation "
            f"token. Received: architecture.variant={recipe.architecture.variant!r}"
        )
    augment = recipe.data.augment
    if isinstance(recipe, MaskedPatch) and (augment.mixup_alpha or augment.cutmix_alpha):
        raise ValueError("Masked patches have no labels to mix. Leave augment.mixup_alpha and cutmix_alpha at 0.")


def _check_teacher(recipe):
    # Other names, as "vit/imagenet21k/ViT-B_16" or "hf:owner/name", are not of a place.
    is_path = recipe.teacher and (recipe.teacher.endswith(".keras") or os.path.isabs(recipe.teacher))
    if not recipe.teacher or (is_path and not tf.io.gfile.exists(recipe.teacher)):
        raise ValueError(
            f"Distillation needs a teacher, a .keras file or the folder of a SavedModel. Received: {recipe.teacher!r}"
        )
