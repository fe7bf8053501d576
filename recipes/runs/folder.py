"""A run's folder: its start, whether the run in it may be resumed, and its checkpoints."""

import json
import os
import uuid
from dataclasses import asdict, replace

import tensorflow as tf

from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.file import read_run, write_recipe
from keras_vit.recipes.remote_files import error_summary, write_file
from keras_vit.recipes.runs.identity import RunIdentity, check_recipe, read_identity
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.weights.files import RECIPE, RUN, are_of_run, checkpoint_steps

VARIABLE = "run/.ATTRIBUTES/VARIABLE_VALUE"  # in a checkpoint, see `Checkpoints`


def prepare_run_folder(recipe: Recipe, chief: bool = True):
    """Creates a recipe's folder and writes recipe.json, or checks that the run in it is resumed by this recipe."""
    folder = required_folder(recipe)
    try:
        tf.io.gfile.makedirs(folder)
        if are_of_run(list_folder(folder)):
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
    if not recipe.run.resume:
        use: list[dict] = [{"run.resume": True}, {"run.folder": f"{folder}-2"}]
        raise RecipeError(f"The folder {folder} already contains a run.", {"run.folder": folder}, use)
    check_recipe(recipe, read_run(folder), folder)


def find_checkpoints(folder) -> list[str]:
    """Paths of the checkpoints in a folder, without ".index", newest first."""
    return [os.path.join(folder, f"step-{step}") for step in checkpoint_steps(list_folder(folder))]


def list_folder(folder) -> list[str]:
    """Names in a folder, local or on gs://; none if it does not exist."""
    try:
        tf.io.gfile.stat(folder)  # `exists` and `isdir` also return False if a bucket does not answer
    except tf.errors.NotFoundError:
        return []
    return [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]


def check_same_run(folder: str, data: RunData, given: dict[str, object], workers: Workers) -> RunIdentity | None:
    """Compares a run with that of its folder, which must be locked, before its model is built.

    If run.json is missing or damaged, for example by a power failure, the newest checkpoint has the identity.

    Args:
        given: What replaces parts of the recipe, as far as it is known without a model, see `Replacements.fields`.

    Returns:
        The identity with which the run in the folder began; None for a new run, and in all processes but the first.

    Raises:
        ValueError: The run in the folder began with other data, or with another loss or augmentation.
    """

    def compare():
        if not are_of_run(list_folder(folder)):
            return None
        began = read_identity(folder) or _of_newest_checkpoint(folder)
        if began is not None:
            _identity_of(data, given).check_same(began, folder, ("loss", "augment"))
        return began

    return _by_chief(compare, folder, workers)


def begin_run(
    folder: str, data: RunData, workers: Workers, replaced: dict[str, object], began: RunIdentity | None
) -> RunIdentity:
    """Compares the built model and optimizer of a run, too, and writes run.json.

    Args:
        began: See `check_same_run`.

    Raises:
        ValueError: The run in the folder began with another model or optimizer.
    """
    current = _identity_of(data, replaced)
    if began is not None:
        current = replace(current, id=began.id)

    def begin():
        if began is not None:
            current.check_same(began, folder)
        write_file(os.path.join(folder, RUN), json.dumps(asdict(current), indent=2) + "\n")

    _by_chief(begin, folder, workers)
    return current if workers.chief else read_identity(folder) or current


def _identity_of(data: RunData, replaced) -> RunIdentity:
    return RunIdentity(uuid.uuid4().hex, data.class_names, data.images, uuid.uuid4().hex, data.files, replaced)


def _by_chief(function, folder, workers: Workers):
    """The result of a function that the first process calls, None in the others; if it fails there, all raise."""
    result = failure = None
    if workers.chief:
        try:
            result = function()
        except (ValueError, OSError) as error:
            failure = error
    if workers.any(failure is not None):
        raise failure or ValueError(f"The chief worker cannot resume the run in {folder}: see its message.")
    return result


def check_unchanged(folder, data: RunData):
    """Raises ValueError if classes, image counts or files changed since the run in a folder was started."""
    if began := read_identity(folder):
        now = replace(began, class_names=data.class_names, images=data.images, files=data.files)
        now.check_same(began, os.fspath(folder))


def _of_newest_checkpoint(folder):
    for path in find_checkpoints(folder):
        try:
            return RunIdentity.from_json(tf.train.load_variable(path, VARIABLE).decode())
        except (tf.errors.OpError, IndexError, ValueError, RuntimeError):  # damaged: `Checkpoints` reports it
            continue
    return None
