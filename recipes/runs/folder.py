"""A run's folder: its start, whether the run in it may be resumed, and its checkpoints."""

import json
import os
import uuid
from dataclasses import asdict

import tensorflow as tf

from keras_vit.messages import error_summary
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.file import read_run, write_recipe
from keras_vit.recipes.remote_files import write_file
from keras_vit.recipes.runs.identity import PARTS, RunIdentity, check_recipe
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.weights.files import RECIPE, RUN, are_of_run, checkpoint_steps

ELSEWHERE = "The chief worker cannot resume the run in {}: see its message."
VARIABLE = "run/.ATTRIBUTES/VARIABLE_VALUE"  # in a checkpoint, see `Checkpoints`


def prepare_run_folder(recipe: Recipe, chief: bool = True) -> bool:
    """Creates a recipe's folder and writes recipe.json, or checks that the run in it is resumed by this recipe.

    Returns whether there is one.
    """
    folder = required_folder(recipe)
    try:
        tf.io.gfile.makedirs(folder)
        if resumes := are_of_run(list_folder(folder)):
            check_resumable(recipe)
        elif chief:
            write_recipe(recipe, os.path.join(folder, RECIPE))
    except tf.errors.OpError as error:
        raise OSError(
            f"The run's folder {folder} cannot be used: {error_summary(error)}. Check the permissions and the free "
            "space, or choose another folder."
        ) from error
    return resumes


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


def check_same_run(folder: str, resumes: bool, data: RunData, replaced: dict, workers: Workers) -> RunIdentity | None:
    """The identity with which the run that is resumed began; None for a new one, and in all processes but the first.

    If run.json is missing or damaged, for example by a power failure, the newest checkpoint has the identity.

    Args:
        folder: Locked.
        replaced: As far as it is known without a model, see `Replacements.fields`.

    Raises:
        ValueError: The run began with other data, or with another loss or augmentation.
    """
    began = None
    with workers.failing_together(ValueError(ELSEWHERE.format(folder))):
        if resumes and workers.chief and (began := read_identity(folder) or _of_newest_checkpoint(folder)):
            began.check_replaced(replaced, folder, PARTS[2:])
            began.check_data(data, folder)
    return began


def begin_run(folder: str, data: RunData, replaced: dict, workers: Workers, began: RunIdentity | None) -> RunIdentity:
    """Writes run.json; raises ValueError if the run that `check_same_run` returned had another model or optimizer."""
    run, process = began.id if began else uuid.uuid4().hex, uuid.uuid4().hex
    current = RunIdentity(run, data.class_names, data.images, process, data.files, replaced)
    with workers.failing_together(ValueError(ELSEWHERE.format(folder))):
        if began:
            began.check_replaced(replaced, folder, PARTS[:2])
        if workers.chief:
            write_file(os.path.join(folder, RUN), json.dumps(asdict(current), indent=2) + "\n")
    return current if workers.chief else read_identity(folder) or current


def check_unchanged(folder, data: RunData):
    """Raises ValueError if classes, image counts or files changed since the run in a folder was started."""
    if began := read_identity(folder):
        began.check_data(data, os.fspath(folder))


def check_owner(identity: RunIdentity, folder: str):
    """Raises OSError if another process has started the run since, which a lock cannot prevent on gs://."""
    try:
        current = read_identity(folder)
    except tf.errors.OpError:  # the checkpoint that is written next reports it
        return
    if current is not None and current.process != identity.process:
        raise OSError(
            f"Another process has started a run in {folder}, so this one ends without saving. Train in one "
            "process at a time, or choose another folder: set run.folder."
        )


def read_identity(folder) -> RunIdentity | None:
    """The identity in a folder's run.json; None if the file is missing or damaged."""
    try:
        with tf.io.gfile.GFile(os.path.join(folder, RUN)) as content:
            return RunIdentity.from_json(content.read())
    except (tf.errors.NotFoundError, UnicodeDecodeError):
        return None


def _of_newest_checkpoint(folder):
    for path in find_checkpoints(folder):
        try:
            return RunIdentity.from_json(tf.train.load_variable(path, VARIABLE).decode())
        except (tf.errors.OpError, IndexError, ValueError, RuntimeError):  # damaged: `Checkpoints` reports it
            continue
    return None
