"""What is checked of a recipe as a whole, before anything slow starts."""

import os
from dataclasses import replace

import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import (
    Architecture,
    Data,
    Distillation,
    MaskedAutoencoder,
    MaskedPatch,
    Optimizer,
    Run,
    Supervised,
)
from keras_vit.recipes.recipe.checks import check_plan
from keras_vit.recipes.recipe.errors import RecipeError


def test_published_recipes_are_valid():
    for recipe in RECIPES.values():
        check_plan(replace(recipe, teacher="hf:a/b") if recipe.has_teacher else recipe)


@pytest.mark.parametrize("teacher", [None, "", "gone.keras", "/no/such/folder"])
def test_teacher_must_exist(teacher, tmp_path):
    with pytest.raises(RecipeError) as raised:
        check_plan(Distillation(teacher=teacher))
    assert raised.value.received == {"teacher": teacher}
    for exists in (str(tmp_path), "hf:a/b"):
        check_plan(Distillation(teacher=exists))


@pytest.mark.parametrize(
    "recipe,received,use",
    [
        (Supervised(total_steps=None), {"total_steps": None, "total_epochs": None}, [{"total_epochs": 10.0}]),
        (Supervised(total_steps=0), {"total_steps": 0}, [{"total_steps": 100}]),
        (
            Supervised(optimizer=Optimizer(warmup_steps=20), total_steps=20),
            {"optimizer.warmup_steps": 20},
            [{"optimizer.warmup_steps": 2}],
        ),
        (
            Supervised(run=Run(epoch_steps=125, steps_per_execution=50)),
            {"run.epoch_steps": 125, "run.steps_per_execution": 50},
            [{"run.epoch_steps": 100}],
        ),
        (
            Supervised(run=Run(restore_best_weights=True), data=Data(image_size=32, validation_split=None)),
            {"run.restore_best_weights": True, "data.validation_split": None},
            [{"data.validation_split": "validation"}, {"run.restore_best_weights": False}],
        ),
        (
            Supervised(run=Run(early_stopping_patience=3), total_steps=600),
            {"run.early_stopping_patience": 3, "run.epoch_steps": 1000},
            [{"run.epoch_steps": 60}, {"run.early_stopping_patience": None}],
        ),
        (
            MaskedPatch(run=Run(early_stopping_patience=3)),
            {"run.early_stopping_patience": 3},
            [{"run.early_stopping_patience": None}],
        ),
        (Supervised(data=Data(image_size=13)), {"data.image_size": 13}, [{"data.image_size": 16}]),
        (
            Supervised(Architecture("H/14"), data=Data(image_size=225)),
            {"data.image_size": 225},
            [{"data.image_size": 224}, {"data.image_size": 238}],
        ),
        (
            Supervised(data=Data(image_size=(30, 64))),
            {"data.image_size": (30, 64)},
            [{"data.image_size": (16, 64)}, {"data.image_size": (32, 64)}],
        ),
        (Supervised(data=Data(image_size=(9, 16))), {"data.image_size": (9, 16)}, [{"data.image_size": 16}]),
        *(
            (
                kind(Architecture("B/32"), data=Data(image_size=32)),
                {"data.image_size": 32},
                [{"data.image_size": 64}],
            )
            for kind in (MaskedAutoencoder, MaskedPatch)
        ),
    ],
)
def test_fields_that_do_not_fit_together(recipe, received, use):
    with pytest.raises(RecipeError) as raised:
        check_plan(recipe)
    assert raised.value.received == received and list(raised.value.use) == use


def test_patches_of_weights_and_of_a_model_to_start_from():
    odd = Supervised(data=Data(image_size=225))
    check_plan(replace(odd, weights="any.npz"))
    check_plan(replace(odd, architecture=Architecture("BiT-R50x1")))
    check_plan(odd, patch_size=(15, 25))
    with pytest.raises(RecipeError):
        check_plan(odd, patch_size=(15, 16))


@pytest.mark.parametrize(
    "folder,plain",
    [("runs/lr[3]", "runs/lr_3]"), ("a*b?", "a_b_"), ("a\\b", "a_b"), ("~/a", os.path.expanduser("~/a"))],
)
def test_folders_that_would_have_another_name(folder, plain):
    with pytest.raises(RecipeError) as error:
        Run(folder=folder)
    assert error.value.received == {"run.folder": folder} and error.value.use == ({"run.folder": plain},)
    assert Run(folder="runs/a{b} c]").folder
