"""Properties of all recipes. Each test checks all of them and names those that fail."""

import ast
from pathlib import Path

import pytest

from keras_vit.recipes import configs
from keras_vit.recipes.configs import RECIPES, SWEEPS, check_dataset, join
from keras_vit.recipes.recipe import SelfSupervised, Supervised
from keras_vit.variants import BIT_SIZES, parse_variant
from keras_vit.weights.published import resolve

CONFIG_FILES = sorted(Path(configs.__file__).parent.glob("[a-z]*.py"))
TRAINS_ON_OWN_DATA = ("jft-", "imagenet21k-", "augreg-i21k-", "masked-patch-b16")


def failing(condition, names=RECIPES):
    """Names of the recipes for which `condition(name, recipe)` is false."""
    return [name for name in names if not condition(name, RECIPES[name])]


def test_variants_exist_and_patches_divide_the_image():
    def valid(name, recipe):
        variant = recipe.architecture.variant
        if variant.startswith("BiT-"):
            return variant.removeprefix("BiT-") in BIT_SIZES
        return recipe.data.image_size % parse_variant(variant)["patch_size"] == 0

    assert not failing(valid)


def test_initial_weights_are_published_or_those_of_another_run():
    def valid(name, recipe):
        return not recipe.weights or recipe.weights.startswith("runs/") or resolve(recipe.weights)

    assert not failing(valid, [name for name in RECIPES if not isinstance(RECIPES[name], SelfSupervised)])


def test_no_validation_curve_is_of_the_test_images():
    """Someone who picks the best epoch of such a curve would pick it on the test images. VTAB's recipes have none."""

    def valid(name, recipe):
        # Pre-training on your own data has one held-out split, named validation.
        is_own = recipe.data.dataset.startswith("tfrecord:") and recipe.data.test_split == "validation"
        return is_own or recipe.data.validation_split != recipe.data.test_split

    assert not failing(valid)
    for prefix in ("finetune-", "bit-", "deit-", "vtab-", "cifar10-"):
        names = [name for name in RECIPES if name.startswith(prefix)]
        assert names and not failing(lambda name, recipe: recipe.data.validation_split is None, names)


def test_either_steps_or_epochs_are_set():
    names = [name for name in RECIPES if not isinstance(RECIPES[name], SelfSupervised)]
    assert not failing(lambda name, recipe: (recipe.total_steps is None) != (recipe.total_epochs is None), names)


def test_warmup_is_shorter_than_training():
    names = [name for name in RECIPES if RECIPES[name].total_steps]
    assert len(names) > 20
    assert not failing(lambda name, recipe: recipe.optimizer.warmup_steps < recipe.total_steps, names)


def test_epochs_and_checkpoints_are_multiples_of_the_steps_per_execution():
    def valid(name, recipe):
        run = recipe.run
        return run.epoch_steps % run.steps_per_execution == run.checkpoint_steps % run.steps_per_execution == 0

    assert not failing(valid)


def test_precision():
    def expected(name):
        return "float32" if name.startswith("digits") else "mixed_bfloat16"

    assert not failing(lambda name, recipe: recipe.run.precision == expected(name))


def test_images_are_resized_before_the_crop():
    assert not failing(
        lambda _, recipe: recipe.data.crop != "resize" or recipe.data.resize_size > recipe.data.image_size
    )


def test_sweeps_are_of_classifiers():
    assert SWEEPS.keys() <= RECIPES.keys()
    assert not failing(lambda name, recipe: isinstance(recipe, Supervised), SWEEPS)


def test_own_data_set_is_requested():
    for name, recipe in RECIPES.items():
        if name.startswith(TRAINS_ON_OWN_DATA):
            with pytest.raises(ValueError, match="Set data.dataset to"):
                check_dataset(recipe)
        else:
            check_dataset(recipe)


def test_names_are_unique():
    with pytest.raises(ValueError, match="called b, c"):
        join([{"a": 1, "b": 2, "c": 3}, {"c": 4, "b": 5}])


def test_no_config_file_imports_tensorflow():
    for file in CONFIG_FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in getattr(node, "names", [])] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert all(name.split(".")[0] in ("collections", "dataclasses", "keras_vit") for name in names), file


def test_every_config_file_starts_with_its_requirements_and_results():
    for file in CONFIG_FILES:
        docstring = ast.get_docstring(ast.parse(file.read_text()))
        missing = [entry for entry in ("Command", "Hardware", "Hours", "Accuracy") if f"\n{entry}:" not in docstring]
        assert not missing and "keras-vit " in docstring, file


def test_the_guide_lists_every_recipe():
    guide = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text()
    # The grid of AugReg and the tasks of VTAB are described, not listed.
    names = [name for name in RECIPES if not name.startswith(("augreg-", "vtab-"))]
    assert not failing(lambda name, recipe: f"`{name}`" in guide, names)
