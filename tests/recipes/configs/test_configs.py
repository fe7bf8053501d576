"""Properties of all recipes. A test names the recipes for which they do not hold."""

from pathlib import Path

import pytest

from keras_vit.recipes.configs import GROUPS, RECIPES, SWEEPS, check_dataset
from keras_vit.recipes.recipe import Supervised
from keras_vit.weights.published import resolve

TRAINS_ON_OWN_DATA = ("jft-", "imagenet21k-", "augreg-i21k-", "masked-patch-b16")
NO_VALIDATION = ("finetune-", "bit-", "deit-", "vtab-", "cifar10-")


def weights_are_published_or_of_another_run(name, recipe):
    weights = getattr(recipe, "weights", None)
    return not weights or weights.startswith("runs/") or resolve(weights)


def no_validation_curve_is_of_the_test_images(name, recipe):
    """Someone who picks the best epoch of such a curve would pick it on the test images."""
    data = recipe.data
    # Pre-training on your own data has one held-out split, named validation.
    is_own = data.dataset.startswith("tfrecord:") and data.test_split == "validation"
    is_other = data.validation_split is None if name.startswith(NO_VALIDATION) else True
    return is_own or (is_other and data.validation_split != data.test_split)


def epochs_and_checkpoints_are_multiples_of_an_execution(name, recipe):
    run = recipe.run
    return run.epoch_steps % run.steps_per_execution == run.checkpoint_steps % run.steps_per_execution == 0


def precision_is_that_of_the_hardware(name, recipe):
    return recipe.run.precision == ("float32" if name.startswith("digits") else "mixed_bfloat16")


def sweeps_are_of_classifiers(name, recipe):
    return name not in SWEEPS or isinstance(recipe, Supervised)


PROPERTIES = [
    weights_are_published_or_of_another_run,
    no_validation_curve_is_of_the_test_images,
    epochs_and_checkpoints_are_multiples_of_an_execution,
    precision_is_that_of_the_hardware,
    sweeps_are_of_classifiers,
]


@pytest.mark.parametrize("holds", PROPERTIES)
def test_property_of_every_recipe(holds):
    assert len(RECIPES) == sum(len(group.RECIPES) for group in GROUPS) > 200 and SWEEPS.keys() <= RECIPES.keys()
    assert not [name for name, recipe in RECIPES.items() if not holds(name, recipe)]


def test_own_dataset_is_requested():
    for name, recipe in RECIPES.items():
        if name.startswith(TRAINS_ON_OWN_DATA):
            with pytest.raises(ValueError, match=r"data\.dataset"):
                check_dataset(recipe)
        else:
            check_dataset(recipe)


def test_the_guide_lists_every_recipe():
    guide = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text()
    # The grid of AugReg and the tasks of VTAB are described, not listed.
    assert not [name for name in RECIPES if not name.startswith(("augreg-", "vtab-")) and f"`{name}`" not in guide]
