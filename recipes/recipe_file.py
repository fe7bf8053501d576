"""A recipe as a JSON file, beside the results that it made: what was run, and what can be run again."""

import dataclasses
import json
from pathlib import Path
from typing import get_type_hints

import tensorflow as tf

from keras_vit.recipes.recipe import Distillation, MaskedPatch, Supervised
from keras_vit.recipes.remote_files import error_summary, write_file

KINDS = {kind.__name__: kind for kind in (MaskedPatch, Supervised, Distillation)}


def write_recipe(recipe, file):
    """Writes a recipe, aside and then renamed; `file` may be on gs://."""
    text = json.dumps({"kind": type(recipe).__name__, **dataclasses.asdict(recipe)}, indent=2) + "\n"
    write_file(file, text)


def read_recipe(file):
    """Reads what `write_recipe` wrote.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: It cannot be read, or is a folder.
        ValueError: The file is no recipe, or of another version: the message names the fields that differ.
    """
    if not tf.io.gfile.exists(str(file)):
        raise FileNotFoundError(f"There is no recipe {file}.")
    try:
        with tf.io.gfile.GFile(str(file)) as content:
            found = json.load(content)
    except tf.errors.OpError as error:
        raise OSError(f"The recipe {file} cannot be read: {error_summary(error)}.") from error
    except ValueError as error:  # no JSON, or no text
        raise ValueError(f"{file} is not a recipe: {error}") from error
    kind = KINDS.get(found.pop("kind", None)) if isinstance(found, dict) else None
    if kind is None:
        raise ValueError(f"{file} is not a recipe: its 'kind' must be one of {', '.join(KINDS)}.")
    return _made(kind, found, Path(file).name)


def _made(kind, values: dict, place: str):
    """The dataclass of these values, and those within it."""
    fields = get_type_hints(kind)
    unknown, missing = sorted(set(values) - set(fields)), sorted(set(fields) - set(values))
    if unknown or missing:
        raise ValueError(
            f"{place} was written by another version of keras_vit. Unknown fields: {', '.join(unknown) or 'none'}; "
            f"missing: {', '.join(missing) or 'none'}. Mend the file, or use the version that wrote it."
        )
    made = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(fields[name]):
            value = _made(fields[name], value, f"{place}: {name}")
        made[name] = tuple(value) if isinstance(value, list) else value
    return kind(**made)
