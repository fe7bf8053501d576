"""A run's folder: whose it is, and what is in it."""

import os
import re
import uuid
from dataclasses import asdict

import tensorflow as tf

from keras_vit.recipes.recipe_file import read_recipe, write_recipe
from keras_vit.recipes.remote_files import error_summary

RECIPE = "recipe.json"
METRICS = "metrics.json"  # of a run that is finished
# Fields of `run`, and of `data`, that decide what is computed; the others may change when a run is resumed.
OF_RUN = ("seed", "precision")
PLACES = ("data_dir", "service", "cache")


def prepare_run_folder(recipe, chief: bool = True):
    """Makes a recipe's folder and writes the recipe into it, unless a former run is there that this one goes on with.

    Args:
        chief: Whether this process is the one of the run that writes.

    Raises:
        ValueError: A former run is there and the recipe does not say resume, or it is another recipe's.
        OSError: The folder cannot be read or written.
    """
    run = recipe.run
    file = os.path.join(run.folder, RECIPE)
    try:
        _check_writable(run.folder)
        if find_checkpoints(run.folder) or tf.io.gfile.exists(os.path.join(run.folder, METRICS)):
            check_resumable(recipe)
        elif chief:
            write_recipe(recipe, file)
    except tf.errors.OpError as error:
        raise OSError(
            f"The run's folder {run.folder} cannot be used: {error_summary(error)}. Mend the access to it, make room, or "
            "choose another folder."
        ) from error


def find_checkpoints(folder) -> list[str]:
    """Paths of the checkpoints in a folder, without ".index", the newest first."""
    found = [re.fullmatch(r"step-(\d+)\.index", name) for name in list_folder(folder)]
    steps = sorted((int(match[1]) for match in found if match), reverse=True)
    return [os.path.join(folder, f"step-{step}") for step in steps]


def list_folder(folder) -> list[str]:
    """Names in a folder, which may be on gs:// or not there."""
    try:
        tf.io.gfile.stat(folder)  # `exists` and `isdir` also say no where a bucket does not answer
    except tf.errors.NotFoundError:
        return []
    return [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]


def _check_writable(folder):
    tf.io.gfile.makedirs(folder)
    trial = os.path.join(folder, f".writable.{uuid.uuid4().hex}")
    with tf.io.gfile.GFile(trial, "w") as file:
        file.write("x")
    tf.io.gfile.remove(trial)


def check_resumable(recipe):
    """Raises ValueError unless the run in the recipe's folder is its own and it says resume; writes nothing."""
    file = os.path.join(recipe.run.folder, RECIPE)
    if not recipe.run.resume:
        raise ValueError(f"{recipe.run.folder} holds a former run. Go on with resume=True, or choose another folder.")
    former = read_recipe(file)
    if type(former) is not type(recipe):
        raise ValueError(
            f"{file} is the recipe of another run, a {type(former).__name__}. Choose another folder than for this "
            f"{type(recipe).__name__}."
        )
    wanted, found = _decisive(recipe), _decisive(former)
    differing = sorted(name for name in wanted if wanted[name] != found[name])
    if differing:
        raise ValueError(
            f"{file} is the recipe of another run; it differs in {', '.join(differing)}. Resume with the same "
            "recipe, or choose another folder."
        )


def _decisive(recipe) -> dict:
    """The fields that decide what is computed, by names such as "optimizer.learning_rate"."""
    fields = {}
    for name, value in asdict(recipe).items():
        inner = value if isinstance(value, dict) else {"": value}
        fields |= {f"{name}.{field}".strip("."): value for field, value in inner.items()}
    return {
        name: value
        for name, value in fields.items()
        if not (name.startswith("run.") and name.removeprefix("run.") not in OF_RUN)
        and name not in {f"data.{place}" for place in PLACES}
    }
