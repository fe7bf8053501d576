"""Fields of a recipe as options of the command line: `optimizer.warmup_steps=20` is `--optimizer.warmup-steps 20`.

Recipes are also run from Python, so that a `RecipeError` has fields and values, and each command spells them.
"""

import shlex
from collections.abc import Callable
from dataclasses import fields, is_dataclass

from keras_vit.recipes.recipe_errors import RecipeError, SeveralErrors

SWEEP_OPTIONS = ("learning_rates", "tuning_split", "held_out_split", "seeds", "metric")  # not of the recipe


def option(name: str, value) -> str:
    """An option and its value, quoted for a shell, such as "--data.mean 0.5 0.5 0.5" or "--run.resume"."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        section, dot, field = name.rpartition(".")
        return f"--{name}" if value else f"--{section}{dot}no-{field}"
    values = value if isinstance(value, tuple | list) else (value,)
    return " ".join([f"--{name}", *(shlex.quote(str(word)) for word in values)])


def recipe_flags(recipe, base, prefix: str = "") -> list[str]:
    """The options that make `base` this recipe, such as "--data.mean 0.5 0.5 0.5"."""
    flags = []
    for field in fields(recipe):
        value, name = getattr(recipe, field.name), prefix + field.name
        if is_dataclass(value):
            flags += recipe_flags(value, getattr(base, field.name), f"{name}.")
        elif value != getattr(base, field.name):
            flags.append(option(name, value))
    return flags


def error_text(error: Exception, command: str) -> str:
    """The message of an error, with the options of a command in place of a recipe's fields.

    Args:
        command: Such as "train".
    """
    if isinstance(error, SeveralErrors):
        return "\n".join(error_text(each, command) for each in error.errors)
    return error.text(_spelling(command)) if isinstance(error, RecipeError) else str(error)


def _spelling(command) -> Callable[[str, object], str]:
    """How a command spells a field of a recipe and its value."""
    return {"train": option, "preflight": option, "sweep": _sweep_option}.get(command, _own_option)


def _sweep_option(field, value):
    return option(field if field in SWEEP_OPTIONS else f"recipe.{field}", value)


def _own_option(field, value):
    """Of commands with a few options of their own: the dataset is an argument, or an option of another name."""
    return str(value) if field == "data.dataset" else option(field.rpartition(".")[2], value)
