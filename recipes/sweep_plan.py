"""What a learning-rate sweep tries. No TensorFlow import here."""

import math
import re
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.recipe_values import check_values

Metric = Literal["top1", "top5"]


@dataclass(frozen=True)
class Sweep:
    """Try learning rates on held-out images, then train on all training images of the recipe with the best one.

    Each run has a subfolder of the recipe's `run.folder`. Finished runs are not repeated, interrupted ones are resumed.

    Args:
        recipe: What to train.
        learning_rates: Learning rates to try. Defaults to the paper's for most of its datasets.
        tuning_split, held_out_split: What the learning rates are tried on, in TensorFlow Datasets' notation. Defaults
            to the recipe's training and validation splits, or, without validation images other than the test images, to
            98 and 2 % of its training split.
        seeds: Seeds of the final runs.
        metric: The metric to maximize; "top5" requires more than 5 classes.
    """

    recipe: Supervised = field(default_factory=Supervised)
    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    tuning_split: str | None = None
    held_out_split: str | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    metric: Metric = "top1"


def tuning_and_held_out(plan: Sweep) -> tuple[str, str]:
    """The splits of the runs that choose the learning rate.

    Raises:
        ValueError: Only one is given, or none and the recipe's splits do not determine them.
    """
    tuning, held_out, data = plan.tuning_split, plan.held_out_split, plan.recipe.data
    if tuning and held_out:
        return tuning, held_out
    train = data.train_split
    if tuning or held_out:
        problem = f"Received: {tuning} and {held_out}"
    elif data.validation_split and data.validation_split != data.test_split:
        return train, data.validation_split
    elif not re.search(r"[\[+]", train):
        return f"{train}[:98%]", f"{train}[98%:]"
    else:
        problem = f"The recipe's training split is {train}, and it has no validation split of its own"
    raise ValueError(
        f"Set both tuning_split and held_out_split, two parts of the training images. {problem}. Type for example "
        "--tuning-split 'train[:70%]' --held-out-split 'train[70%:80%]'"
    )


def check_plan(plan: Sweep):
    """Raises ValueError for a sweep without rates, seeds or splits, an unknown metric, or values out of range."""
    if not plan.learning_rates or not plan.seeds:
        raise ValueError(f"A sweep requires learning_rates and seeds. Received: {plan.learning_rates} and {plan.seeds}")
    if plan.metric not in get_args(Metric):
        raise ValueError(f"`metric` must be one of {', '.join(get_args(Metric))}. Received: {plan.metric!r}")
    tuning_and_held_out(plan)
    for rate in plan.learning_rates:
        if not (math.isfinite(rate) and rate >= 0):
            raise ValueError(f"`learning_rates` must be finite and at least 0. Received: {plan.learning_rates}")
    for seed in plan.seeds:
        check_values(replace(plan.recipe, run=replace(plan.recipe.run, seed=seed)))
