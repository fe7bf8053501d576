"""Fields of recipes in messages become options; the length of a run is specified once: steps replace epochs."""

import shlex
from dataclasses import replace

import pytest
import tyro

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Augment, Run, Supervised
from keras_vit.recipes.recipe.errors import RecipeError, SeveralErrors
from keras_vit.recipes.runs.learning_rate_sweep import Sweep
from keras_vit_cli.recipe_options import error_text, parse_fields, recipe_flags

ERROR = RecipeError(
    "A reason.",
    {"data.dataset": "folder:a b", "data.mean": (0.4, 0.5, 0.6), "run.tensorboard": True, "loss": "sigmoid"},
    [{"optimizer.layer_decay": None}, {"run.resume": False, "seeds": (0, 1)}],
)
TRAIN = (
    "A reason. Received: --data.dataset 'folder:a b', --data.mean 0.4 0.5 0.6, --run.tensorboard, --loss sigmoid. "
    "Use --optimizer.layer-decay None, or --run.no-resume and --seeds 0 1."
)
SWEEP = TRAIN.replace(" --", " --recipe.").replace("--recipe.seeds", "--seeds")
OTHER = (
    "A reason. Received: folder:a b, --mean 0.4 0.5 0.6, --tensorboard, --loss sigmoid. "
    "Use --layer-decay None, or --no-resume and --seeds 0 1."
)


@pytest.mark.parametrize("command,text", [("train", TRAIN), ("preflight", TRAIN), ("sweep", SWEEP), ("vtab", OTHER)])
def test_fields_of_errors_are_options_of_the_command(command, text):
    assert error_text(ERROR, command) == text
    assert error_text(SeveralErrors([ERROR, ValueError("data.mean=x")]), command) == f"{text}\ndata.mean=x"


def test_options_are_accepted_by_the_command_line():
    base = Supervised()
    recipe = replace(
        base,
        weights="my model.keras",
        data=replace(base.data, mean=(0.4, 0.5, 0.6), flip=False, augment=Augment(erasing=0.5)),
        optimizer=replace(base.optimizer, layer_decay=0.7, global_clipnorm=None),
        run=Run(resume=True, folder="x"),
    )
    assert tyro.cli(Supervised, args=shlex.split(" ".join(recipe_flags(recipe, base)))) == recipe


@pytest.mark.parametrize(
    "name,options,steps,epochs",
    [
        ("cifar10-10ep", "--total-steps 20", 20, None),
        ("cifar10-10ep", "--total_steps=20 --total-epochs None", 20, None),
        ("cifar10-10ep", "--total-epochs 3 --run.seed 1", None, 3),
        ("cifar10-10ep", "--run.seed 1", None, 10),
        ("cifar10-scratch", "--total-epochs=0.5", None, 0.5),
        ("cifar10-scratch", "--total-epochs None", 2000, None),
        ("cifar10-mae", "--total-steps 20", 20, None),
    ],
)
def test_one_length_replaces_the_other(name, options, steps, epochs):
    found = parse_fields(RECIPES[name], name, options.split())
    assert (found.total_steps, found.total_epochs) == (steps, epochs)
    if found.has_labels:
        words = options.replace("--", "--recipe.").split()
        assert parse_fields(Sweep(RECIPES[name]), name, words).recipe == found
