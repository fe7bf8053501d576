"""Recipes as JSON files: a run writes its recipe.json, which can be run again."""

import dataclasses
import difflib
import json
import os
from typing import Any

import tensorflow as tf

from keras_vit.messages import error_summary, first_names
from keras_vit.recipes.recipe import Distillation, MaskedAutoencoder, MaskedPatch, Recipe, Supervised
from keras_vit.recipes.recipe.errors import RecipeError, SeveralErrors
from keras_vit.recipes.remote_files import write_file
from keras_vit.weights.files import RECIPE, RUN

KINDS = {kind.__name__: kind for kind in (MaskedPatch, MaskedAutoencoder, Supervised, Distillation)}


def write_recipe(recipe: Recipe, file):
    """Writes a recipe to a file, local or on gs://."""
    text = json.dumps({"kind": type(recipe).__name__, **dataclasses.asdict(recipe)}, indent=2) + "\n"
    write_file(file, text)


def started_run(folder) -> bool:
    """Whether the recipe.json in a folder is that of a run there, not a copy of the file alone."""
    return tf.io.gfile.exists(os.path.join(folder, RUN))


def read_run(folder) -> Recipe:
    """The recipe of the run in a folder, local or on gs://: its `run.folder` is this one, wherever the run began.

    So is the folder around the files of `data` that are within. Raises errors of `read_recipe`.
    """
    recipe = read_recipe(os.path.join(folder, RECIPE))
    places = {name: getattr(recipe.data, name) for name in ("group", "converted")}
    began = os.path.join(recipe.run.folder or "", "")
    moved = {
        name: os.path.join(folder, place.removeprefix(began))
        for name, place in places.items()
        if place and recipe.run.folder and place.startswith(began)
    }
    data = dataclasses.replace(recipe.data, **moved)
    return dataclasses.replace(recipe, data=data, run=dataclasses.replace(recipe.run, folder=str(folder)))


def read_recipe(file) -> Recipe:
    """Reads a file written by `write_recipe`.

    Raises:
        FileNotFoundError: The file does not exist.
        OSError: It cannot be read, or is a folder.
        ValueError: It is not a recipe, is of another version of keras_vit, or has fields that cannot be used.
    """
    if not tf.io.gfile.exists(str(file)):
        raise FileNotFoundError(f"The recipe {file} does not exist.")
    try:
        with tf.io.gfile.GFile(str(file)) as content:
            values = json.load(content)
    except tf.errors.OpError as error:
        raise OSError(f"The recipe {file} cannot be read: {error_summary(error)}.") from error
    except ValueError as error:  # not JSON, or not text
        raise ValueError(f"{file} is not a recipe: {error}. Fix the file.") from error
    except RecursionError as error:
        raise ValueError(f"{file} is not a recipe: it is nested too deeply. Fix the file.") from error
    name = values.pop("kind", None) if isinstance(values, dict) else None
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"{file} is not a recipe: its 'kind' must be one of {', '.join(KINDS)}. Fix the file.")
    return _from_dict(kind, values, str(file))


def _from_dict(kind: type, values: dict, place: str):
    """Builds a dataclass and the dataclasses in its fields; `place` is the file and field for error messages."""
    fields: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(kind)}
    if unknown := sorted(set(values) - set(fields)):
        similar = [near[0] for name in unknown if (near := difflib.get_close_matches(name, fields, 1))]
        hint = f" Perhaps you meant {first_names(map(repr, similar))}." if similar else ""
        raise ValueError(
            f"{place}: unknown fields: {first_names(map(repr, unknown))}.{hint} Fix the file, or use the version of "
            "keras_vit that wrote it."
        )
    arguments = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(fields[name]) and isinstance(value, dict):
            value = _from_dict(fields[name], value, f"{place}: {name}")
        arguments[name] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**arguments)
    except (RecipeError, SeveralErrors) as error:
        raise ValueError(f"{place}: {error} Fix the file.") from error
