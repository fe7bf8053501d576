"""Checks of a recipe's fields alone, before anything that takes seconds: no TensorFlow import here.

Messages name fields as Python does, `optimizer.warmup_steps`, as those of checks.py.
"""

from keras_vit.recipes.check_all import check_all
from keras_vit.recipes.data.transform_checks import check_transform_fields
from keras_vit.recipes.recipe import Recipe, SelfSupervised
from keras_vit.recipes.recipe_values import check_values
from keras_vit.recipes.training.kind_checks import check_kind


def check_fields(recipe: Recipe):
    """Checks the values of a recipe's fields, and which of them fit together.

    Raises:
        ValueError: Values that cannot be meant, see `check_values`; or, with a line for each, fields that exclude each
            other, such as a warmup as long as the run.
    """
    check_values(recipe)
    check_all(
        lambda: check_kind(recipe),
        lambda: check_transform_fields(recipe.data),
        lambda: check_schedule(recipe),
    )


def check_schedule(recipe: Recipe):
    """Raises ValueError unless length, warmup and epochs fit together; `check_data` checks a length in epochs."""
    steps = recipe.total_steps
    check_all(
        lambda: _check_epoch(recipe),
        lambda: _check_length_is_set(recipe),
        lambda: check_length(recipe, steps) if steps is not None else None,
    )


def check_length(recipe: Recipe, total_steps: int):
    """Raises ValueError if a run of `total_steps` is not longer than its warmup."""
    warmup = recipe.optimizer.warmup_steps
    if total_steps < 1 or warmup >= total_steps:
        fix = f"optimizer.warmup_steps={total_steps // 10}" if total_steps > 0 else "total_steps=100"
        raise ValueError(
            "optimizer.warmup_steps must be less than total_steps, which must be at least 1. Received: "
            f"optimizer.warmup_steps={warmup} for a run of {total_steps} steps. Use {fix}."
        )


def _check_length_is_set(recipe):
    if not isinstance(recipe, SelfSupervised) and (recipe.total_steps is None) == (recipe.total_epochs is None):
        raise ValueError(
            "Set either total_steps or total_epochs, and the other to None. Received: "
            f"total_steps={recipe.total_steps}, total_epochs={recipe.total_epochs}"
        )


def _check_epoch(recipe):
    epoch, execution = recipe.run.epoch_steps, recipe.run.steps_per_execution
    if epoch > execution and epoch % execution:
        raise ValueError(
            f"run.epoch_steps={epoch} is not a multiple of run.steps_per_execution={execution}, so every epoch would "
            f"compile twice. Use run.epoch_steps={epoch // execution * execution}."
        )
