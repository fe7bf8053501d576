"""Fields of a recipe as options of the command line: `optimizer.warmup_steps=20` is `--optimizer.warmup-steps 20`.

The options are parsed and checked before TensorFlow is imported, which takes seconds. Recipes are also run from Python,
so that a `RecipeError` has fields and values, and each command spells them.
"""

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

from keras_vit.recipes.recipe import USED_WITH_WEIGHTS
from keras_vit.recipes.recipe.checks import check_plan
from keras_vit.recipes.recipe.errors import RecipeError, SeveralErrors, check_all
from keras_vit.recipes.recipe.values import check_sections, deferred_checks
from keras_vit.recipes.runs.learning_rate_sweep import Sweep
from keras_vit.weights.files import are_of_run
from keras_vit_cli.inputs import check_dataset, check_weights
from keras_vit_cli.parser import parse

SWEEP_OPTIONS = ("learning_rates", "tuning_split", "held_out_split", "seeds", "metric")  # not of the recipe
SIZES = ("depth", "width", "mlp_dim", "num_heads")


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
    """The message of an error, with the options of a command, such as "train", in place of a recipe's fields."""
    if isinstance(error, SeveralErrors):
        return "\n".join(error_text(each, command) for each in error.errors)
    return error.text(_spelling(command)) if isinstance(error, RecipeError) else str(error)


def _spelling(command) -> Callable[[str, object], str]:
    """How a command spells a field of a recipe and its value."""
    return {"train": option, "preflight": option, "sweep": _sweep_option}.get(command, _own_option)


def _sweep_option(field, value):
    return option(field if field in SWEEP_OPTIONS else f"recipe.{field}", value)


def _own_option(field, value):
    """For commands with a few options of their own: the dataset is an argument, or an option of another name."""
    return str(value) if field == "data.dataset" else option(field.rpartition(".")[2], value)


def parse_fields(default, name: str, arguments):
    """A recipe or sweep with the options of a command line; `check_start` checks it.

    Steps replace the epochs of a recipe, and epochs its steps. `name` precedes the options: "keras-vit train cifar10".
    """
    with deferred_checks():  # tyro would report the first error, by the names of Python
        parsed = parse(type(default), name, arguments, default)
        if isinstance(parsed, Sweep):
            return replace(parsed, recipe=_with_one_length(parsed.recipe, default.recipe))
        return _with_one_length(parsed, default)


def _with_one_length(recipe, named):
    if not recipe.has_labels:
        return recipe
    lengths = {name: getattr(recipe, name) for name in ("total_steps", "total_epochs")}
    changed = [name for name, length in lengths.items() if length not in (None, getattr(named, name))]
    replaced = lengths.keys() - changed if len(changed) == 1 else ()
    return replace(recipe, **dict.fromkeys(replaced))


def check_start(recipe, named, prefix: str = ""):
    """Checks a recipe's fields, its folder, its dataset's path and its weights; prints what might surprise.

    Args:
        recipe: The recipe with all options.
        named: The recipe without them.
        prefix: Of the options, such as "recipe.".

    Raises ValueError or FileNotFoundError with all that is wrong.
    """
    from keras_vit.recipes import configs

    if not recipe.weights and recipe.architecture.variant != named.architecture.variant:
        _note_sizes(recipe, named, prefix)
    check_all(
        lambda: check_fields(recipe),
        lambda: configs.check_dataset(recipe),
        lambda: check_dataset(recipe.data.dataset),
        lambda: check_new_run(recipe.run),
        lambda: _check_weights(recipe.weights, named),
        lambda: check_architecture(recipe, named),
    )


def check_fields(recipe):
    """Raises RecipeError or SeveralErrors for fields that cannot be used, or do not fit together."""
    check_sections(recipe)
    check_plan(recipe)


def check_new_run(run):
    """Raises RecipeError if a local `run.folder` contains a run and `run.resume` is not set."""
    if run.resume or not run.folder or "://" in run.folder:
        return
    if has_run(Path(run.folder)):
        raise RecipeError(
            f"The folder {run.folder} already contains a run.",
            {"run.folder": run.folder},
            [{"run.resume": True}, {"run.folder": f"{run.folder}-2"}],
        )


def has_run(folder: Path) -> bool:
    """Whether a local folder contains checkpoints or results."""
    return folder.is_dir() and are_of_run(os.listdir(folder))


def _check_weights(weights, named):
    from keras_vit.recipes.configs import RECIPES

    if not weights:
        return
    run = Path(weights).parent
    # A recipe may start from the model of another one, which is trained first.
    if weights == named.weights and run.parent == Path("runs") and run.name in RECIPES and not run.exists():
        raise FileNotFoundError(
            f"{weights} does not exist: train it with `keras-vit train {run.name}`, or choose another file or "
            "name of weights."
        )
    check_weights(weights)


def check_architecture(recipe, named):
    """Raises RecipeError if a field of the architecture is changed, but weights determine the model."""
    if not recipe.weights:
        return
    names = [field.name for field in fields(recipe.architecture) if field.name not in USED_WITH_WEIGHTS]
    values = {name: getattr(recipe.architecture, name) for name in names}
    changed = {name: value for name, value in values.items() if value != getattr(named.architecture, name)}
    if changed:
        raise RecipeError(
            f"The weights {recipe.weights} determine the model, so that these fields have no effect.",
            {f"architecture.{name}": value for name, value in changed.items()},
            [{f"architecture.{name}": getattr(named.architecture, name) for name in changed}, {"weights": None}],
        )


def _note_sizes(recipe, named, prefix):
    """Prints the sizes of the named recipe that still apply to another variant."""
    values = {name: getattr(recipe.architecture, name) for name in SIZES}
    kept = {name: value for name, value in values.items() if value == getattr(named.architecture, name) is not None}
    if kept:
        sizes = ", ".join(f"{name} {value}" for name, value in kept.items())
        flags = " ".join(f"--{prefix}architecture.{name.replace('_', '-')} None" for name in kept)
        print(
            f"Note: of the recipe, {sizes} still apply to the variant {recipe.architecture.variant}. For its own pass "
            f"{flags}",
            file=sys.stderr,
        )
