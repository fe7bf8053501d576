"""What is wrong with a recipe on the command line, before TensorFlow is imported, which takes seconds."""

import sys
from dataclasses import fields, replace
from pathlib import Path

import tyro

from keras_vit.recipes.learning_rate_sweep import Sweep
from keras_vit.recipes.recipe import USED_WITH_WEIGHTS
from keras_vit.recipes.recipe_checks import check_plan
from keras_vit.recipes.recipe_errors import RecipeError, check_all
from keras_vit.recipes.recipe_values import check_sections, deferred_checks
from keras_vit_cli.given_paths import check_dataset_path, check_new_run, check_weights

SIZES = ("depth", "width", "mlp_dim", "num_heads")


def check_start(recipe, named, prefix: str = ""):
    """Checks a recipe's fields, its folder, its dataset's path and its weights; prints what might surprise.

    Args:
        recipe: The recipe with all options.
        named: The recipe without them.
        prefix: Of the options, such as "recipe.".

    Raises:
        ValueError: All that is wrong: fields, see `check_sections` and `check_plan`; the dataset is a placeholder or
            there is nothing at its path; the folder contains a run; a field of the architecture is changed, but weights
            determine the model.
        FileNotFoundError: The weights do not exist, such as those of another recipe that was not trained yet.
    """
    from keras_vit.recipes.configs import check_dataset

    if not recipe.weights and recipe.architecture.variant != named.architecture.variant:
        _note_sizes(recipe, named, prefix)
    check_all(
        lambda: check_fields(recipe),
        lambda: check_dataset(recipe),
        lambda: check_dataset_path(recipe.data.dataset),
        lambda: check_new_run(recipe.run),
        lambda: _check_weights(recipe.weights, named),
        lambda: check_architecture(recipe, named),
    )


def parse_fields(default, name: str, arguments):
    """A recipe or sweep with the options of a command line; `check_start` checks it, with all else.

    Steps replace the epochs of a recipe, and epochs its steps.

    Args:
        default: Without the options.
        name: What precedes the options, such as "keras-vit train cifar10".
    """
    with deferred_checks():  # tyro would report the first error, by the names of Python
        parsed = tyro.cli(type(default), default=default, prog=name, args=arguments)
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


def check_fields(recipe):
    """Raises RecipeError or SeveralErrors for fields that cannot be used, or do not fit together."""
    check_sections(recipe)
    check_plan(recipe)


def _check_weights(weights, named):
    from keras_vit.recipes.configs import RECIPES

    if not weights:
        return
    run = Path(weights).parent
    # Of a recipe that starts from the model of another one, which is trained first.
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
    kept = [name for name in SIZES if _kept(name, recipe.architecture, named.architecture)]
    if kept:
        sizes = ", ".join(f"{name} {getattr(recipe.architecture, name)}" for name in kept)
        flags = " ".join(f"--{prefix}architecture.{name.replace('_', '-')} None" for name in kept)
        print(
            f"Note: of the recipe, {sizes} still apply to the variant {recipe.architecture.variant}. For its own pass "
            f"{flags}",
            file=sys.stderr,
        )


def _kept(name, architecture, before):
    value = getattr(architecture, name)
    return value is not None and value == getattr(before, name)
