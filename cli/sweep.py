"""`keras-vit sweep`: the paper's choice of a learning rate, and its three runs."""

from dataclasses import dataclass, replace
from typing import Annotated

import tyro

from keras_vit_cli.train import find_recipe, run_name


@dataclass(frozen=True)
class Sweep:
    """Choose a recipe's learning rate on held-out images, then train on all with three seeds, as the paper did.

    `keras-vit sweep NAME --help` lists the fields, those of the recipe under --recipe.

    Args:
        name: Of a recipe for a classifier, or a file.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self):
        """Runs the sweep and prints its table."""
        from keras_vit.recipes import learning_rate_sweep
        from keras_vit.recipes.configs import SWEEPS, check_dataset
        from keras_vit.recipes.recipe import MaskedPatch

        recipe = find_recipe(self.name)
        if isinstance(recipe, MaskedPatch):
            raise ValueError(f"{self.name} has no labels to choose a learning rate by. Sweep a classifier's recipe.")
        plan = learning_rate_sweep.Sweep(recipe, **SWEEPS.get(self.name, {}))
        run = replace(recipe.run, folder=f"runs/{run_name(self.name)}-sweep")
        plan = replace(plan, recipe=replace(recipe, run=run))
        plan = tyro.cli(learning_rate_sweep.Sweep, default=plan, prog=f"keras-vit sweep {self.name}", args=self.changes)
        check_dataset(plan.recipe)
        print(learning_rate_sweep.table(learning_rate_sweep.sweep(plan), plan.metric))
