"""What all recipes must have."""

import ast
from pathlib import Path

import pytest

from keras_vit.recipes import configs
from keras_vit.recipes.configs import RECIPES, SWEEPS, check_dataset, join
from keras_vit.recipes.recipe import MaskedPatch, Supervised
from keras_vit.variants import BIT_SIZES, parse_variant
from keras_vit.weights.published import resolve


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_be_run(name):
    recipe = RECIPES[name]
    variant, run = recipe.architecture.variant, recipe.run
    if variant.startswith("BiT-"):
        assert variant.removeprefix("BiT-") in BIT_SIZES
    else:
        assert recipe.data.image_size % parse_variant(variant)["patch_size"] == 0
    if not isinstance(recipe, MaskedPatch):
        assert (recipe.total_steps is None) != (recipe.total_epochs is None)
        weights = recipe.weights
        assert weights is None or weights.startswith("runs/") or resolve(weights)
    if recipe.total_steps:
        assert recipe.optimizer.warmup_steps < recipe.total_steps
    assert run.epoch_steps % run.steps_per_execution == 0 and run.checkpoint_steps % run.steps_per_execution == 0
    assert run.precision == ("float32" if name.startswith("digits") else "mixed_bfloat16")
    assert recipe.data.crop != "resize" or recipe.data.resize_size > recipe.data.image_size


def test_sweeps_are_of_recipes():
    assert SWEEPS.keys() <= RECIPES.keys()
    assert all(isinstance(RECIPES[name], Supervised) for name in SWEEPS)


def test_a_data_set_of_the_users_is_asked_for():
    own = {name for name in RECIPES if name.startswith(("jft-", "imagenet21k-", "augreg-i21k-", "masked-patch-b16"))}
    for name, recipe in RECIPES.items():
        if name in own:
            with pytest.raises(ValueError, match="--data.dataset"):
                check_dataset(recipe)
        else:
            check_dataset(recipe)


def test_names_are_unique():
    with pytest.raises(ValueError, match="called b, c"):
        join([{"a": 1, "b": 2, "c": 3}, {"c": 4, "b": 5}])


def test_no_recipe_file_imports_tensorflow():
    for file in Path(configs.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in getattr(node, "names", [])] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert all(name.split(".")[0] in ("dataclasses", "keras_vit") for name in names), file


@pytest.mark.parametrize("file", sorted(Path(configs.__file__).parent.glob("[a-z]*.py")), ids=lambda file: file.stem)
def test_every_file_opens_with_what_a_run_takes_and_gives(file):
    words = ast.get_docstring(ast.parse(file.read_text()))
    assert all(f"\n{what}:" in words for what in ("Command", "Hardware", "Hours", "Accuracy"))
    assert "keras-vit " in words


def test_the_guide_lists_every_recipe():
    guide = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text()
    # The grid of AugReg and the tasks of VTAB are described, not listed.
    missing = [name for name in RECIPES if not name.startswith(("augreg-", "vtab-")) and f"`{name}`" not in guide]
    assert not missing
