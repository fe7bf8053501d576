"""`keras-vit train`: trains a recipe; its options are the fields of the recipe."""

import difflib
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.option_words import check_option_words
from keras_vit_cli.preprocessing_flags import with_recipe_fields
from keras_vit_cli.start_checks import check_start, parse_fields

PERCENT = {"top1": "top-1", "top5": "top-5"}  # metrics in [0, 1]
UNPRINTED = ("images", "learning_rate")
RECIPE = "recipe.json"  # as keras_vit.recipes.checkpoints.run_folder, which imports TensorFlow


@dataclass(frozen=True)
class Train:
    """Train a recipe, or the recipe.json of a previous run; any field can be overridden.

    `keras-vit train` lists the recipes; `keras-vit train NAME --help` lists the fields. Options follow NAME, such as
    --optimizer.learning-rate 1e-3; --preprocessing imagenet, clip, half or FILE.json sets --data.mean and
    --data.std. Checkpoints and results are written to runs/NAME, or to --run.folder.

    Args:
        name: Name of a recipe, a file recipe.json, or the folder of a previous run.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = ""
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self):
        """Trains, or lists the recipes if no name is given."""
        if not self.name:
            print(_list_recipes())
            return
        named = find_recipe(self.name)
        if named.run.folder is None:  # always write checkpoints
            named = replace(named, run=replace(named.run, folder=f"runs/{run_name(self.name)}"))
        changes = with_recipe_fields(self.changes)
        check_option_words(changes, named)
        recipe = parse_fields(named, f"keras-vit train {self.name}", changes)
        check_start(recipe, named)
        from keras_vit.recipes import run_recipe

        _print_result(recipe, named, run_recipe.run(recipe))


def _list_recipes() -> str:
    """The names of all recipes below the purpose of their group, the first line of its file."""
    from keras_vit.recipes.configs import GROUPS

    lines = ["Recipes for keras-vit train NAME, small ones first. Hours and accuracies: docs/recipes.md."]
    for group in GROUPS:
        purpose = (group.__doc__ or group.__name__).partition("\n")[0]
        names = textwrap.wrap(" ".join(group.RECIPES), 118, break_on_hyphens=False)
        lines += ["", purpose, *(f"  {line}" for line in names)]
    return "\n".join(lines)


def _print_result(recipe, named, metrics: dict[str, float]):
    """Prints the metrics, of which data they are, where the model is, and what to do with it."""
    from keras_vit_cli.next_commands import next_commands

    data = recipe.data
    if not recipe.has_labels:
        print("\nIn the last epoch:")
    else:
        print(f"\nOn {metrics['images']:,} images of the split {data.test_split!r} of {data.dataset}:")
    kind = "" if recipe.has_labels else "color "  # of 512 colors, not of classes
    for metric, value in metrics.items():
        if metric not in UNPRINTED and (value or metric != "nonfinite_steps"):
            percent = f"{kind}{PERCENT.get(metric)} {100 * value:.1f} %"
            print(percent if metric in PERCENT else f"{metric} {value:.6g}")
    print(f"Model: {recipe.run.folder}/model.keras")
    if "://" not in recipe.run.folder:  # models are read from local files
        print("\nNext:", *next_commands(recipe, named), sep="\n    ")


def run_name(name: str) -> str:
    """Default name of a recipe's runs: its name, or that of the folder of its recipe.json."""
    if name.endswith(".json"):
        return Path(name).absolute().parent.name
    return Path(name).absolute().name if _is_run(name) else name


def find_recipe(name: str):
    """A recipe by name, or from the recipe.json of a previous run, or of the run in a folder.

    Raises:
        ValueError: The recipe does not exist; the message suggests similar names. The file cannot be read.
    """
    from keras_vit.recipes.configs import RECIPES

    if name in RECIPES:
        return RECIPES[name]
    if name.endswith(".json") or _is_run(name):
        from keras_vit.recipes.recipe_file import read_recipe

        return read_recipe(name if name.endswith(".json") else Path(name) / RECIPE)
    similar = difflib.get_close_matches(name, RECIPES, n=5, cutoff=0.5)
    hint = f"Did you mean one of: {', '.join(similar)}? " if similar else ""
    raise ValueError(f"No recipe {name!r}. {hint}keras-vit train lists all recipes; a recipe file ends in .json.")


def _is_run(name: str) -> bool:
    return (Path(name) / RECIPE).is_file()
