"""`keras-vit train`: runs a recipe; its options are the fields of the recipe's dataclasses."""

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Train:
    """Run a recipe by name, or again from a run's recipe.json, with any field changed.

    `keras-vit train` lists the names; `keras-vit train NAME --help` lists the fields. NAME comes first, then its
    fields, such as --optimizer.learning-rate 1e-3. Checkpoints and results go to runs/NAME unless --run.folder says
    where else.

    Args:
        name: Of a recipe, or a file.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = ""
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self):
        """Trains, or lists the recipes if there is no name."""
        if not self.name:
            from keras_vit.recipes.configs import RECIPES

            print("Recipes, for keras-vit train NAME; docs/recipes.md says what each is:\n")
            print("\n".join(RECIPES))
            return
        from keras_vit.recipes.configs import check_dataset

        recipe = find_recipe(self.name)
        if recipe.run.folder is None:  # what is trained for hours should not be lost
            recipe = replace(recipe, run=replace(recipe.run, folder=f"runs/{run_name(self.name)}"))
        recipe = tyro.cli(type(recipe), default=recipe, prog=f"keras-vit train {self.name}", args=self.changes)
        check_dataset(recipe)
        from keras_vit.recipes import run_recipe

        for metric, value in run_recipe.run(recipe).items():
            print(f"{metric}: {value:.6g}")


def run_name(name: str) -> str:
    """What a recipe's runs are called: its name, or that of the folder in which its file lies."""
    return Path(name).absolute().parent.name if name.endswith(".json") else name


def find_recipe(name: str):
    """A recipe by name, or from a file that a run left.

    Raises:
        ValueError: There is no such recipe; the message names those of similar names.
    """
    from keras_vit.recipes.configs import RECIPES

    if name in RECIPES:
        return RECIPES[name]
    if name.endswith(".json"):
        from keras_vit.recipes.recipe_file import read_recipe

        return read_recipe(name)
    near = difflib.get_close_matches(name, RECIPES, n=5, cutoff=0.5)
    raise ValueError(
        f"No recipe {name!r}. {'Near: ' + ', '.join(near) + '. ' if near else ''}keras-vit train lists all names; a "
        "file ends in .json."
    )
