"""Properties of all recipes. A test names the recipes for which they do not hold."""

from pathlib import Path

import pytest

from keras_vit.recipes.configs import RECIPES, SWEEPS, check_dataset, join
from keras_vit.recipes.recipe import SelfSupervised, Supervised
from keras_vit.variants import BIT_SIZES, parse_variant
from keras_vit.weights.published import resolve

TRAINS_ON_OWN_DATA = ("jft-", "imagenet21k-", "augreg-i21k-", "masked-patch-b16")
NO_VALIDATION = ("finetune-", "bit-", "deit-", "vtab-", "cifar10-")


def patches_divide_the_image(name, recipe):
    variant = recipe.architecture.variant
    if variant.startswith("BiT-"):
        return variant.removeprefix("BiT-") in BIT_SIZES
    return recipe.data.image_size % parse_variant(variant)["patch_size"] == 0


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


def either_steps_or_epochs_are_set(name, recipe):
    return isinstance(recipe, SelfSupervised) or (recipe.total_steps is None) != (recipe.total_epochs is None)


def warmup_is_shorter_than_training(name, recipe):
    return not recipe.total_steps or recipe.optimizer.warmup_steps < recipe.total_steps


def epochs_and_checkpoints_are_multiples_of_an_execution(name, recipe):
    run = recipe.run
    return run.epoch_steps % run.steps_per_execution == run.checkpoint_steps % run.steps_per_execution == 0


def precision_is_that_of_the_hardware(name, recipe):
    return recipe.run.precision == ("float32" if name.startswith("digits") else "mixed_bfloat16")


def images_are_resized_before_the_crop(name, recipe):
    return recipe.data.crop != "resize" or recipe.data.resize_size > recipe.data.image_size


def sweeps_are_of_classifiers(name, recipe):
    return name not in SWEEPS or isinstance(recipe, Supervised)


PROPERTIES = [
    patches_divide_the_image,
    weights_are_published_or_of_another_run,
    no_validation_curve_is_of_the_test_images,
    either_steps_or_epochs_are_set,
    warmup_is_shorter_than_training,
    epochs_and_checkpoints_are_multiples_of_an_execution,
    precision_is_that_of_the_hardware,
    images_are_resized_before_the_crop,
    sweeps_are_of_classifiers,
]


@pytest.mark.parametrize("holds", PROPERTIES)
def test_property_of_every_recipe(holds):
    assert len(RECIPES) > 200 and SWEEPS.keys() <= RECIPES.keys()
    assert not [name for name, recipe in RECIPES.items() if not holds(name, recipe)]


def test_own_dataset_is_requested():
    for name, recipe in RECIPES.items():
        if name.startswith(TRAINS_ON_OWN_DATA):
            with pytest.raises(ValueError, match=r"data\.dataset"):
                check_dataset(recipe)
        else:
            check_dataset(recipe)


def test_names_are_unique():
    with pytest.raises(ValueError, match="b, c"):
        join([{"a": 1, "b": 2, "c": 3}, {"c": 4, "b": 5}])


def test_the_guide_lists_every_recipe():
    guide = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text()
    # The grid of AugReg and the tasks of VTAB are described, not listed.
    assert not [name for name in RECIPES if not name.startswith(("augreg-", "vtab-")) and f"`{name}`" not in guide]
