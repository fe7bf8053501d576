"""Options of `keras-vit train` about the model and its weights that would be without effect, or surprise."""

import sys
from dataclasses import fields
from pathlib import Path

SIZES = ("depth", "width", "mlp_dim", "num_heads")
# Of the architecture, what a model with given weights takes, too.
USED_WITH_WEIGHTS = ("dropout", "stochastic_depth", "patch_dropout")


def check_start(recipe, named):
    """Checks what a recipe starts from, before anything is imported that takes seconds.

    Args:
        recipe: The recipe with all options.
        named: The recipe without them.

    Raises:
        ValueError: A field of the architecture is changed, but weights determine the model.
        FileNotFoundError: The weights of the named recipe are those of another recipe that was not trained yet.
    """
    weights = getattr(recipe, "weights", None)
    if weights:
        _check_architecture(recipe, named)
        if weights == named.weights and weights.startswith("runs/") and not Path(weights).exists():
            raise FileNotFoundError(
                f"{weights} does not exist: train it with `keras-vit train {Path(weights).parent.name}`, or pass "
                "--weights with another file or name."
            )
    elif recipe.architecture.variant != named.architecture.variant:
        _note_sizes(recipe, named)


def _check_architecture(recipe, named):
    for field in fields(recipe.architecture):
        value = getattr(recipe.architecture, field.name)
        if field.name not in USED_WITH_WEIGHTS and value != getattr(named.architecture, field.name):
            raise ValueError(
                f"architecture.{field.name}={value!r} has no effect, since the weights {recipe.weights} determine the "
                "model. Omit it, or start with random weights: --weights None."
            )


def _note_sizes(recipe, named):
    """Prints the sizes of the named recipe that still apply to another variant."""
    kept = [name for name in SIZES if _kept(name, recipe.architecture, named.architecture)]
    if kept:
        sizes = ", ".join(f"{name} {getattr(recipe.architecture, name)}" for name in kept)
        flags = " ".join(f"--architecture.{name.replace('_', '-')} None" for name in kept)
        print(
            f"Note: of the recipe, {sizes} still apply to the variant {recipe.architecture.variant}. For its own pass "
            f"{flags}",
            file=sys.stderr,
        )


def _kept(name, architecture, before):
    value = getattr(architecture, name)
    return value is not None and value == getattr(before, name)
