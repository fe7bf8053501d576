"""What is wrong with a recipe on the command line, before TensorFlow is imported, which takes seconds."""

import sys
from dataclasses import fields
from pathlib import Path

from keras_vit.recipes.recipe import USED_WITH_WEIGHTS
from keras_vit_cli.given_paths import check_dataset_path, check_new_run, check_weights

SIZES = ("depth", "width", "mlp_dim", "num_heads")


def check_start(recipe, named, prefix: str = ""):
    """Checks a recipe's fields, its folder, its dataset's path and its weights; prints what might surprise.

    Args:
        recipe: The recipe with all options.
        named: The recipe without them.
        prefix: Of the options, such as "recipe.".

    Raises:
        ValueError: With a line for each: see `check_fields`; the dataset is a placeholder or there is nothing at its
            path; the folder contains a run; a field of the architecture is changed, but weights determine the model.
        FileNotFoundError: The weights do not exist, such as those of another recipe that was not trained yet.
    """
    from keras_vit.recipes.check_all import check_all
    from keras_vit.recipes.configs import check_dataset

    weights = getattr(recipe, "weights", None)
    if not weights and recipe.architecture.variant != named.architecture.variant:
        _note_sizes(recipe, named, prefix)
    check_all(
        lambda: _check_fields(recipe, weights),
        lambda: check_dataset(recipe),
        lambda: check_dataset_path(recipe.data.dataset),
        lambda: check_new_run(recipe.run),
        lambda: _check_weights(weights, named),
        lambda: check_architecture(recipe, named),
    )


def _check_fields(recipe, weights):
    from keras_vit.recipes.check_all import check_all
    from keras_vit.recipes.recipe_values import check_values
    from keras_vit.recipes.training.field_checks import check_fields
    from keras_vit.recipes.training.variant_checks import check_image_size

    check_values(recipe)
    checks = [lambda: check_fields(recipe)]
    if not weights:  # which determine the size of the patches
        checks.append(lambda: check_image_size(recipe.architecture, recipe.data))
    check_all(*checks)


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
    """Raises ValueError if a field of the architecture is changed, but weights determine the model."""
    if not getattr(recipe, "weights", None):
        return
    for field in fields(recipe.architecture):
        value = getattr(recipe.architecture, field.name)
        if field.name not in USED_WITH_WEIGHTS and value != getattr(named.architecture, field.name):
            raise ValueError(
                f"architecture.{field.name}={value!r} has no effect, since the weights {recipe.weights} determine the "
                "model. Omit it, or start with random weights: weights=None."
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
