"""What a learning-rate sweep tries. No TensorFlow import here."""

import re
from dataclasses import dataclass, field
from typing import Literal

from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.recipe_errors import RecipeError
from keras_vit.recipes.recipe_values import Checked

Metric = Literal["top1", "top5"]


@dataclass(frozen=True)
class Sweep(Checked):
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

    def _check_runs(self):
        if empty := [name for name in ("learning_rates", "seeds") if not getattr(self, name)]:
            defaults = {name: getattr(Sweep, name) for name in empty}
            raise RecipeError("A sweep requires learning rates and seeds.", dict.fromkeys(empty, ()), defaults)


def tuning_and_held_out(plan: Sweep) -> tuple[str, str]:
    """The splits of the runs that choose the learning rate.

    Raises:
        RecipeError: Only one is given, or none and the recipe's splits do not determine them.
    """
    tuning, held_out, data = plan.tuning_split, plan.held_out_split, plan.recipe.data
    if tuning and held_out:
        return tuning, held_out
    train = data.train_split
    if tuning or held_out:
        problem = "One of them is missing"
    elif data.validation_split and data.validation_split != data.test_split:
        return train, data.validation_split
    elif not re.search(r"[\[+]", train):
        return f"{train}[:98%]", f"{train}[98%:]"
    else:
        problem = f"The recipe's training split is {train}, and it has no validation split of its own"
    raise RecipeError(
        f"A sweep tries learning rates on two parts of the training images, of which it tunes on one. {problem}.",
        {"tuning_split": tuning, "held_out_split": held_out},
        {"tuning_split": "train[:70%]", "held_out_split": "train[70%:80%]"},
    )
