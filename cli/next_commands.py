"""What to do with the model that `keras-vit train` wrote: commands with its paths and dataset."""

import os
import shlex
from dataclasses import replace
from pathlib import Path

import keras

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Data
from keras_vit_cli.flags import recipe_flags
from keras_vit_cli.inspect.model import keras_class

DATASET = ("dataset", "data_dir", "train_split", "validation_split", "test_split")


def next_commands(recipe, named) -> list[str]:
    """Commands for the model in a recipe's local folder.

    Args:
        recipe: The trained recipe.
        named: The recipe without the options of the command line.
    """
    if not recipe.has_labels:
        return [_fine_tuning(recipe, named), _inspect(recipe)]
    folder = recipe.run.folder
    data = f"--dataset {shlex.quote(recipe.data.dataset)} --split {shlex.quote(recipe.data.test_split)}"
    if recipe.data.data_dir:
        data += f" --data-dir {shlex.quote(recipe.data.data_dir)}"
    if recipe.data.max_corrupt > Data.max_corrupt:
        data += f" --max-corrupt {recipe.data.max_corrupt:g}"
    commands = [f"keras-vit evaluate {shlex.quote(folder)} {data} --per-class"]
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


def _fine_tuning(recipe, named) -> str:
    """The command that trains a classifier from a model that was trained without labels."""
    model = shlex.quote(f"{recipe.run.folder}/model.keras")
    name = _recipe_to_fine_tune(named)
    if not name or recipe.data.dataset.startswith("folder:"):  # whose images may have no labels
        return f"keras-vit finetune FOLDER --weights {model}  # FOLDER/<class>/<image>"
    tuned = RECIPES[name]
    changed = {field: getattr(recipe.data, field) for field in DATASET}
    changed = {field: value for field, value in changed.items() if value != getattr(named.data, field)}
    flags = recipe_flags(replace(tuned.data, **changed), tuned.data, "data.")
    return " ".join(["keras-vit train", name, f"--weights {model}", *flags])


def _recipe_to_fine_tune(named) -> str | None:
    """Name of the recipe that fits best: for the same dataset, from the model of a recipe as similar as possible."""

    def similarity(name):
        start = RECIPES.get(Path(RECIPES[name].weights).parent.name)  # weights of a run have the name of its recipe
        if type(start) is not type(named):
            return 0
        return 1 + (start.architecture.variant == named.architecture.variant)

    fitting = [name for name, recipe in RECIPES.items() if recipe.weights and recipe.data.dataset == named.data.dataset]
    return max(fitting, key=similarity, default=None)
