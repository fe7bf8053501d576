"""A run's folder: which recipe it belongs to, and its checkpoints."""

import os
import re

import tensorflow as tf

from keras_vit.recipes.recipe import USED_WITH_WEIGHTS, Recipe
from keras_vit.recipes.recipe_errors import RecipeError
from keras_vit.recipes.recipe_file import read_run, write_recipe
from keras_vit.recipes.recipe_values import flat_fields
from keras_vit.recipes.remote_files import error_summary
from keras_vit.weights.files import METRICS, MODEL, RECIPE

# Fields of `run` that determine what is computed, and fields of `data` that do not: a resumed run may change the latter
# and all others of `run`.
RUN_IDENTITY = ("seed", "precision", "early_stopping_patience", "restore_best_weights", "monitor")
DATA_LOCATIONS = ("data_dir", "service")


def prepare_run_folder(recipe: Recipe, chief: bool = True):
    """Creates a recipe's folder and writes recipe.json, or checks that the run in it is resumed by this recipe."""
    folder = required_folder(recipe)
    try:
        tf.io.gfile.makedirs(folder)
        if has_run(folder):
            check_resumable(recipe)
        elif chief:
            write_recipe(recipe, os.path.join(folder, RECIPE))
    except tf.errors.OpError as error:
        raise OSError(
            f"The run's folder {folder} cannot be used: {error_summary(error)}. Check the permissions and the free "
            "space, or choose another folder."
        ) from error


def required_folder(recipe: Recipe) -> str:
    """`run.folder` of a recipe; raises RecipeError if it is None."""
    if recipe.run.folder is None:
        raise RecipeError("A folder for the results is required.", {"run.folder": None}, {"run.folder": "runs/x"})
    return recipe.run.folder


def check_resumable(recipe: Recipe):
    """Raises RecipeError unless the run in the recipe's folder is of this recipe and `run.resume` is set."""
    folder = required_folder(recipe)
    file, other_folder = os.path.join(folder, RECIPE), {"run.folder": f"{folder}-2"}
    if not recipe.run.resume:
        raise RecipeError(
            f"The folder {folder} already contains a run.", {"run.folder": folder}, [{"run.resume": True}, other_folder]
        )
    previous = read_run(folder)
    if type(previous) is not type(recipe):
        raise RecipeError(
            f"{file} is of another run: its kind is {type(previous).__name__}, this recipe's is "
            f"{type(recipe).__name__}.",
            {"run.folder": folder},
            other_folder,
        )
    fields, previous_fields = _identity(recipe), _identity(previous)
    shared = sorted(fields.keys() & previous_fields.keys())  # those of an architecture only without weights
    differing = [name for name in shared if fields[name] != previous_fields[name]]
    if differing:
        use: list[dict] = [{name: previous_fields[name] for name in differing}, other_folder]
        model = os.path.join(folder, MODEL)
        if recipe.has_labels and tf.io.gfile.exists(model):  # to start from the trained weights
            use.append({**other_folder, "weights": model, "keep_head": True})
        raise RecipeError(f"{file} is of another run.", {name: fields[name] for name in differing}, use)


def has_run(folder) -> bool:
    """Whether a folder contains checkpoints or results."""
    return bool(find_checkpoints(folder)) or tf.io.gfile.exists(os.path.join(folder, METRICS))


def find_checkpoints(folder) -> list[str]:
    """Paths of the checkpoints in a folder, without ".index", newest first."""
    matches = [re.fullmatch(r"step-(\d+)\.index", name) for name in list_folder(folder)]
    steps = sorted((int(match[1]) for match in matches if match), reverse=True)
    return [os.path.join(folder, f"step-{step}") for step in steps]


def list_folder(folder) -> list[str]:
    """Names in a folder, local or on gs://; none if it does not exist."""
    try:
        tf.io.gfile.stat(folder)  # `exists` and `isdir` also return False if a bucket does not answer
    except tf.errors.NotFoundError:
        return []
    return [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]


def _identity(recipe) -> dict[str, object]:
    """The fields that determine what is computed, by name; weights leave a few of an architecture."""
    weights = recipe.weights
    return {
        name: value
        for name, value in flat_fields(recipe).items()
        if not (name.startswith("run.") and name.removeprefix("run.") not in RUN_IDENTITY)
        and name not in {f"data.{location}" for location in DATA_LOCATIONS}
        and not (weights and name.startswith("architecture.") and name.partition(".")[2] not in USED_WITH_WEIGHTS)
    }
