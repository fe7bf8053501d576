"""The length of a run on the command line: steps replace the epochs of a recipe, and epochs its steps."""

from dataclasses import replace

from keras_vit.recipes.recipe_errors import RecipeError

LENGTHS = {"total-steps": "total_epochs", "total-epochs": "total_steps"}  # and the field that each replaces


def with_length(recipe, arguments, prefix: str = ""):
    """The recipe without the length that an option replaces.

    Args:
        recipe: Before the options are applied.
        arguments: The command line, such as ("--total-steps", "20").
        prefix: Of its options, such as "recipe.".

    Raises:
        RecipeError: Both lengths are given.
    """
    given = {name: value for name in LENGTHS if (value := _value(arguments, f"--{prefix}{name}")) not in ("", "None")}
    if len(given) > 1:
        received = {name.replace("-", "_"): value for name, value in given.items()}
        raise RecipeError("A run has a length in steps or in epochs: omit one of them.", received)
    replaced = [LENGTHS[name] for name in given if hasattr(recipe, LENGTHS[name])]
    return replace(recipe, **dict.fromkeys(replaced)) if recipe.has_labels else recipe


def _value(arguments, option) -> str:
    """The last value of an option; "" without one."""
    value = ""
    for word, following in zip(arguments, (*arguments[1:], "")):
        name, equals, joined = word.partition("=")
        if name.replace("_", "-") == option:
            value = joined if equals else following
    return value
