"""`keras-vit sweep`: the paper's learning-rate sweep, followed by three final runs."""

from dataclasses import dataclass, replace
from typing import Annotated

import tyro

from keras_vit.recipes.recipe_errors import check_all
from keras_vit.recipes.recipe_values import check_sections
from keras_vit_cli.option_words import check_option_words
from keras_vit_cli.preprocessing_flags import with_recipe_fields
from keras_vit_cli.start_checks import check_start, parse_fields
from keras_vit_cli.train import find_recipe, run_name


@dataclass(frozen=True)
class Sweep:
    """Choose a recipe's learning rate on held-out images, then train with three seeds, as in the paper.

    `keras-vit sweep NAME --help` lists the options; fields of the recipe start with --recipe.

    Args:
        name: Name of a classifier's recipe, or a file recipe.json, or the folder of a previous run. The learning rates
            and held-out images of the paper are known by the name of its recipe.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self):
        """Runs the sweep and prints its table."""
        from keras_vit.recipes.configs import SWEEPS
        from keras_vit.recipes.learning_rate_sweep import Sweep, markdown_table, sweep, tuning_and_held_out

        recipe = find_recipe(self.name)
        if not recipe.has_labels:
            raise ValueError(
                f"{self.name} trains without labels, so there is no accuracy to maximize. Sweep a classifier's recipe."
            )
        changes = with_recipe_fields(self.changes, "recipe.")
        check_option_words(changes, recipe, "recipe.")
        recipe = replace(recipe, run=replace(recipe.run, folder=f"runs/{run_name(self.name)}-sweep"))
        default = Sweep(recipe, **SWEEPS.get(self.name, {}))
        plan = parse_fields(default, f"keras-vit sweep {self.name}", changes)
        if _splits(plan.recipe) != _splits(recipe) and _held_out(plan) == _held_out(default):
            plan = replace(
                plan, tuning_split=None, held_out_split=None
            )  # those of the paper are of the recipe's splits
        check_all(
            lambda: check_sections(plan),
            lambda: tuning_and_held_out(plan),
            lambda: check_start(plan.recipe, recipe, "recipe."),
        )
        print(markdown_table(sweep(plan), plan.metric))


def _splits(recipe):
    return recipe.data.train_split, recipe.data.validation_split, recipe.data.test_split


def _held_out(plan):
    return plan.tuning_split, plan.held_out_split
