"""`keras-vit train` and `sweep`: their options are the fields of the recipe."""

import difflib
import os
import shlex
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from keras_vit.intervals import percent
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.recipe.errors import check_all
from keras_vit.recipes.recipe.values import check_sections
from keras_vit.recipes.runs import learning_rate_sweep
from keras_vit.weights.files import RECIPE
from keras_vit_cli.commands.report.evaluation import report_run
from keras_vit_cli.inputs import keras_class, process_variables
from keras_vit_cli.preprocessing_flags import with_recipe_fields
from keras_vit_cli.recipe_options import check_start, parse_fields
from keras_vit_cli.words import Recipe, corrupt_note

ACCURACIES = {"top1": "top-1", "top5": "top-5"}  # metrics in [0, 1]
UNPRINTED = ("images", "learning_rate")


@dataclass(frozen=True)
class Train:
    """Train a recipe, with any of its fields changed.

    `keras-vit train` lists the recipes, `keras-vit train NAME --help` the fields, `keras-vit train NAME --help WORD`
    those with a word. Options follow NAME, such as --optimizer.learning-rate 1e-3; --preprocessing imagenet, clip,
    half, pixels or FILE.json sets --data.mean and --data.std. Checkpoints and results, of a classifier with
    predictions.csv and report.html, are written to runs/NAME, or to --run.folder.
    """

    name: Recipe = ""
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self):
        """Trains, or lists the recipes if no name is given."""
        if not self.name:
            print(_list_recipes())
            return
        named = find_recipe(self.name)
        if named.run.folder is None:  # always write checkpoints
            named = replace(named, run=replace(named.run, folder=f"runs/{run_name(self.name)}"))
        recipe = parse_fields(named, f"keras-vit train {self.name}", with_recipe_fields(self.changes))
        check_start(recipe, named)
        from keras_vit.recipes import run_recipe

        metrics = run_recipe.run(recipe)
        _print_result(recipe, metrics)
        if recipe.has_labels and recipe.data.test_split and not process_variables() and "://" not in recipe.run.folder:
            report_run(recipe)


@dataclass(frozen=True)
class Sweep:
    """Choose a recipe's learning rate, then train with three seeds.

    The learning rate is chosen on held-out images, as in the paper; those of the paper are known by the name of its
    recipe. `keras-vit sweep NAME --help` lists the options; fields of the recipe start with --recipe.
    """

    name: Recipe
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self):
        """Runs the sweep and prints its table."""
        from keras_vit.recipes.configs import SWEEPS

        recipe = find_recipe(self.name)
        if not recipe.has_labels:
            raise ValueError(
                f"{self.name} trains without labels, so there is no accuracy to maximize. Sweep a classifier's recipe."
            )
        recipe = replace(recipe, run=replace(recipe.run, folder=f"runs/{run_name(self.name)}-sweep"))
        default = learning_rate_sweep.Sweep(recipe, **SWEEPS.get(self.name, {}))
        changes = with_recipe_fields(self.changes, "recipe.")
        plan = parse_fields(default, f"keras-vit sweep {self.name}", changes)
        if _splits(plan.recipe) != _splits(recipe) and _held_out(plan) == _held_out(default):
            # The held-out images of the paper are parts of the recipe's own splits.
            plan = replace(plan, tuning_split=None, held_out_split=None)
        check_all(
            lambda: check_sections(plan),
            lambda: learning_rate_sweep.tuning_and_held_out(plan),
            lambda: check_start(plan.recipe, recipe, "recipe."),
        )
        print(learning_rate_sweep.markdown_table(learning_rate_sweep.sweep(plan), plan.metric))


def _splits(recipe):
    return recipe.data.train_split, recipe.data.validation_split, recipe.data.test_split


def _held_out(plan):
    return plan.tuning_split, plan.held_out_split


def check_name(command: str, arguments):
    """Raises ValueError if options precede the name of a recipe or run, or there is none."""
    from keras_vit.recipes.configs import RECIPES

    if not arguments or not arguments[0].startswith("-") or arguments[0] in ("-h", "--help"):
        return
    name = next((word for word in arguments if word in RECIPES or _is_run(word)), "NAME")
    options = [word for word in arguments if word not in RECIPES]
    raise ValueError(
        f"The name of a recipe, or the folder of a run, precedes all options: keras-vit {command} "
        f"{shlex.join([name, *options])}\nkeras-vit train lists the recipes."
    )


def _list_recipes() -> str:
    """The names of all recipes below the purpose of their group, the first line of its file."""
    from keras_vit.recipes.configs import GROUPS

    lines = ["Recipes for keras-vit train NAME, small ones first. Hours and accuracies: docs/recipes.md."]
    for group in GROUPS:
        purpose = (group.__doc__ or group.__name__).partition("\n")[0]
        names = textwrap.wrap(" ".join(group.RECIPES), 118, break_on_hyphens=False)
        lines += ["", purpose, *(f"  {line}" for line in names)]
    return "\n".join(lines)


def run_name(name: str) -> str:
    """Default name of a recipe's runs: its name, or that of the folder of its recipe.json."""
    if name.endswith(".json"):
        return Path(name).absolute().parent.name
    return Path(name).absolute().name if "://" in name or _is_run(name) else name


def find_recipe(name: str):
    """A recipe by name, of the run in a folder, which is then its `run.folder`, or from another file.

    A recipe.json in the folder of a run means that run.
    """
    from keras_vit.recipes.configs import RECIPES

    if name in RECIPES:
        return RECIPES[name]
    if "://" in name or name.endswith(".json") or _is_run(name):
        from keras_vit.recipes.recipe.file import read_recipe, read_run, started_run

        if not name.endswith(".json"):
            return read_run(name.rstrip("/"))
        folder, file = os.path.split(name)
        return read_run(folder or ".") if file == RECIPE and started_run(folder or ".") else read_recipe(name)
    similar = difflib.get_close_matches(name, RECIPES, n=5, cutoff=0.5)
    hint = f"Did you mean one of: {', '.join(similar)}? " if similar else ""
    raise ValueError(f"No recipe {name!r}. {hint}keras-vit train lists all recipes; a recipe file ends in .json.")


def _is_run(name: str) -> bool:
    return (Path(name) / RECIPE).is_file()


def _print_result(recipe, metrics: dict[str, float]):
    """Prints the metrics, of which data they are, where the model is, and what to do with it."""
    data = recipe.data
    if not recipe.has_labels or data.test_split is None:
        print("\nIn the last epoch, of the training images:")
    else:
        # Of several labels, those without one count in the mean average precision alone.
        images = "" if "mean_average_precision" in metrics else f"{metrics['images']:,} images of "
        print(f"\nOn {images}the test set ({data.test_split!r} of {data.dataset}):")
    for metric, value in metrics.items():
        if metric not in UNPRINTED and (value or metric != "nonfinite_steps"):
            print(_result(metric, value, metrics.get("images"), "" if recipe.has_labels else "color "))
    print(f"Model: {recipe.run.folder}/model.keras")
    if "://" not in recipe.run.folder:  # models are read from local files
        commands = next_commands(recipe)
        print("\nNext:", *commands, sep="\n    ")
        if any("--max-corrupt" in command for command in commands):
            print(corrupt_note(data.max_corrupt))


def _result(metric, value, images, what) -> str:
    """A metric and its value; accuracies of test images with their interval."""
    if metric not in ACCURACIES:
        return f"{metric} {value:.6g}"
    if not images:
        return f"{what}{ACCURACIES[metric]} {100 * value:.1f} %"
    return f"{ACCURACIES[metric]} {percent(round(value * images), images)}"


def next_commands(recipe) -> list[str]:
    """Commands for the model in a recipe's local folder."""
    import keras

    folder = recipe.run.folder
    if not recipe.has_labels:
        model = shlex.quote(f"{folder}/model.keras")
        return [f"keras-vit finetune FOLDER --weights {model}  # FOLDER/<class>/<image>", _inspect(recipe)]
    split = recipe.data.test_split or recipe.data.train_split
    data = f"--dataset {shlex.quote(recipe.data.dataset)} --split {shlex.quote(split)}"
    if recipe.data.group:
        data += f" --group {shlex.quote(recipe.data.group)}"
    if recipe.data.data_dir:
        data += f" --data-dir {shlex.quote(recipe.data.data_dir)}"
    if recipe.data.max_corrupt > Data.max_corrupt:
        data += f" --max-corrupt {recipe.data.max_corrupt:g}"
    commands = [f"keras-vit evaluate {shlex.quote(folder)} {data} --per-class"] if recipe.data.test_split else []
    if keras.backend.backend() == "tensorflow":  # no other one exports
        commands.append(f"keras-vit export {shlex.quote(folder)} {data} --output {shlex.quote(f'{folder}/exported')}")
    if keras_class(Path(folder) / "model.keras") == "VisionTransformer":  # a ResNet has no attention
        commands.append(_inspect(recipe))
    return commands


def _inspect(recipe) -> str:
    source, _, path = recipe.data.dataset.partition(":")
    images = shlex.quote(os.path.expanduser(path)) if source == "folder" else "IMAGES"
    run, report = shlex.quote(recipe.run.folder), shlex.quote(f"{recipe.run.folder}/inspect.html")
    return f"keras-vit inspect {run} --images {images} --output {report}"
