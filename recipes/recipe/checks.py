"""Checks of a recipe as a whole, before anything that takes seconds: no TensorFlow import here.

Recipes and their sections check their own fields when they are created; runs/ has what requires data and devices.
"""

import math
import os

from keras_vit.images import as_size, shortest_size
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.recipe.data import Data
from keras_vit.recipes.recipe.errors import RecipeError, check_all
from keras_vit.variants import parse_variant


def check_plan(recipe: Recipe, patch_size: int | tuple[int, int] | None = None):
    """Checks that length, warmup and epochs fit together, the image and its patches, and that a teacher exists.

    Args:
        patch_size: Of a model to start from, in pixels, or (height, width); by default that of the recipe's variant,
            or, with weights, unknown.
    """
    check_all(
        lambda: _check_epoch(recipe.run),
        lambda: check_length(recipe, recipe.total_steps),
        lambda: check_validations(recipe, recipe.total_steps),
        lambda: _check_images(recipe, patch_size),
        lambda: _check_teacher(recipe),
    )


def check_length(recipe: Recipe, total_steps: int | None):
    """Raises RecipeError unless a run is longer than its warmup; of None steps, unless it has a length in epochs."""
    warmup = recipe.optimizer.warmup_steps
    if total_steps is None and recipe.total_epochs is None:
        raise RecipeError("The length is missing.", {"total_steps": None, "total_epochs": None}, {"total_epochs": 10.0})
    if total_steps is not None and total_steps < 1:
        raise RecipeError("A run has at least one step.", {"total_steps": total_steps}, {"total_steps": 100})
    if total_steps is not None and warmup >= total_steps:
        raise RecipeError(
            f"The warmup must be shorter than the run of {total_steps} steps.",
            {"optimizer.warmup_steps": warmup},
            {"optimizer.warmup_steps": total_steps // 10},
        )


def check_validations(recipe: Recipe, total_steps: int | None):
    """Raises RecipeError if there are no several validations for early stopping and the best weights to compare."""
    run, off = recipe.run, {"run.early_stopping_patience": None, "run.restore_best_weights": False}
    if not run.chooses_weights:
        return
    chosen = {name: getattr(run, name.removeprefix("run.")) for name in off}
    chosen = {name: value for name, value in chosen.items() if value != off[name]}
    unset = {name: off[name] for name in chosen}
    if not recipe.has_labels:
        raise RecipeError("Training without labels has no validation.", chosen, unset)
    if not recipe.data.validation_split:
        split = {"data.validation_split": "validation"}
        reason = "The best weights are those of the best validation, which requires images that are not trained on."
        raise RecipeError(reason, {**chosen, "data.validation_split": None}, [split, unset])
    if total_steps is not None and run.epoch_steps >= total_steps:
        raise RecipeError(
            f"A run of {total_steps:,} steps has one validation, at its end.",
            {**chosen, "run.epoch_steps": run.epoch_steps},
            [{"run.epoch_steps": max(1, total_steps // 10)}, unset],
        )


def check_patches(data: Data, patch_size: int | tuple[int, int]):
    """Raises RecipeError if the image is not divisible into patches of these pixels, or of (height, width)."""
    height, width = as_size(patch_size, "patch_size")
    steps = (height, width) if isinstance(data.image_size, tuple) else (math.lcm(height, width),) * 2
    smaller = tuple(side // step * step for side, step in zip(data.input_size, steps))
    if smaller != data.input_size:
        larger = tuple(-(-side // step) * step for side, step in zip(data.input_size, steps))
        raise RecipeError(
            f"The image cannot be divided into patches of {height} x {width} pixels.",
            {"data.image_size": data.image_size},
            [{"data.image_size": shortest_size(size)} for size in (smaller, larger) if all(size)],
        )


def _check_images(recipe, patch_size):
    if patch_size is None and not recipe.weights and not recipe.architecture.is_bit:
        patch_size = parse_variant(recipe.architecture.variant)["patch_size"]
    if patch_size is None:
        return
    check_patches(recipe.data, patch_size)
    if not recipe.has_labels and recipe.data.input_size == as_size(patch_size):
        raise RecipeError(
            "Pre-training without labels hides some patches and requires at least two.",
            {"data.image_size": recipe.data.image_size},
            {"data.image_size": shortest_size([2 * side for side in recipe.data.input_size])},
        )


def _check_epoch(run):
    epoch, execution = run.epoch_steps, run.steps_per_execution
    if epoch > execution and epoch % execution:
        raise RecipeError(
            "Each epoch must be a multiple of the steps per execution, or would compile twice.",
            {"run.epoch_steps": epoch, "run.steps_per_execution": execution},
            {"run.epoch_steps": epoch // execution * execution},
        )


def _check_teacher(recipe):
    if not recipe.has_teacher:
        return
    teacher = recipe.teacher
    # Checkpoint names such as "vit/imagenet21k/ViT-B_16" or "hf:owner/name" are not paths.
    is_path = teacher and (teacher.endswith(".keras") or os.path.isabs(teacher))
    if not teacher or (is_path and not _exists(teacher)):
        raise RecipeError(
            "Distillation requires a teacher: a .keras file, the folder of a SavedModel, or a name of weights.",
            {"teacher": teacher},
        )


def _exists(path) -> bool:
    if "://" not in path:
        return os.path.exists(path)
    import tensorflow as tf  # takes seconds

    return tf.io.gfile.exists(path)
