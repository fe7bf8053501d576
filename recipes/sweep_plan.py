"""What a learning-rate sweep tries. No TensorFlow import here."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.recipe_values import check_values

Metric = Literal["top1", "top5"]


@dataclass(frozen=True)
class Sweep:
    """Try learning rates on held-out training images, then train on all training images with the best one.

    Each run has a subfolder of the recipe's `run.folder`. Finished runs are not repeated, interrupted ones are resumed.

    Args:
        recipe: What to train.
        learning_rates: Learning rates to try. Defaults to the paper's for most of its datasets.
        tuning_split, held_out_split: Parts of the training images, in TensorFlow Datasets' notation.
        seeds: Seeds of the final runs.
        metric: The metric to maximize; "top5" requires more than 5 classes.
    """

    recipe: Supervised = field(default_factory=Supervised)
    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    tuning_split: str = "train[:98%]"
    held_out_split: str = "train[98%:]"
    seeds: tuple[int, ...] = (0, 1, 2)
    metric: Metric = "top1"


def check_plan(plan: Sweep):
    """Raises ValueError for a sweep without learning rates or seeds, an unknown metric, or values out of range."""
    if not plan.learning_rates or not plan.seeds:
        raise ValueError(f"A sweep requires learning_rates and seeds. Received: {plan.learning_rates} and {plan.seeds}")
    if plan.metric not in get_args(Metric):
        raise ValueError(f"`metric` must be one of {', '.join(get_args(Metric))}. Received: {plan.metric!r}")
    for rate in plan.learning_rates:
        if not (math.isfinite(rate) and rate >= 0):
            raise ValueError(f"`learning_rates` must be finite and at least 0. Received: {plan.learning_rates}")
    for seed in plan.seeds:
        check_values(replace(plan.recipe, run=replace(plan.recipe.run, seed=seed)))
