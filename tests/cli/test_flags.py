"""Fields of recipes in messages become options; the length of a run is specified once: steps replace epochs."""

import pytest
import tyro

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Supervised
from keras_vit_cli.flags import fields_to_flags
from keras_vit_cli.run_length import with_length

EPOCHS, STEPS = RECIPES["cifar10-10ep"], RECIPES["cifar10-scratch"]


@pytest.mark.parametrize(
    "message,expected",
    [
        ("decoder_heads=4, optimizer.beta_2", "--decoder-heads 4, --optimizer.beta-2"),
        ("Use run.epoch_steps=100.", "Use --run.epoch-steps 100."),
        ("set run.folder='gs://BUCKET/FOLDER'; or", "set --run.folder gs://BUCKET/FOLDER; or"),
        ("resume with run.resume=True.", "resume with --run.resume."),
        ("set run.tensorboard=False", "set --run.no-tensorboard"),
        (
            "data.augment.mixup_alpha=0.0, data.mean=(0.5, 0.5, 0.5)",
            "--data.augment.mixup-alpha 0.0, --data.mean 0.5 0.5 0.5",
        ),
        ("Set data.mean=(0.4, 0.5, 0.6) and data.std=(1, 1, 1).", "Set --data.mean 0.4 0.5 0.6 and --data.std 1 1 1."),
        ("less than total_steps, Received: loss='sigmoid'", "less than --total-steps, Received: --loss sigmoid"),
        ("The loss of the teacher in runs/data.cache", "The loss of the teacher in runs/data.cache"),
        ("Perhaps you meant 'total_steps'. Fix the file", "Perhaps you meant 'total_steps'. Fix the file"),
        ("optimizer.layer_decay=None, run.unknown", "--optimizer.layer-decay None, run.unknown"),
    ],
)
def test_fields_to_flags(message, expected):
    assert fields_to_flags(message) == expected


def test_flags_are_accepted_by_the_command_line():
    fields = "run.resume=True data.mean=(0.4, 0.5, 0.6) optimizer.layer_decay=None run.folder='x'"
    recipe = tyro.cli(Supervised, args=fields_to_flags(fields).split())
    assert recipe.run.resume and recipe.data.mean == (0.4, 0.5, 0.6) and recipe.run.folder == "x"


@pytest.mark.parametrize(
    "recipe,options,steps,epochs",
    [
        (EPOCHS, "--total-steps 20", None, None),  # the option is applied later
        (EPOCHS, "--total_steps=20 --total-epochs None", None, None),
        (EPOCHS, "--total-epochs 3 --run.seed 1", None, 10),
        (STEPS, "--total-epochs=0.5", None, None),
        (STEPS, "--total-epochs None", 2000, None),
        (STEPS, "--total-steps", 2000, None),  # tyro reports that its value is missing
    ],
)
def test_one_length_replaces_the_other(recipe, options, steps, epochs):
    found = with_length(recipe, tuple(options.split()))
    assert (found.total_steps, found.total_epochs) == (steps, epochs)


def test_length_with_a_prefix_and_of_recipes_without_epochs():
    assert with_length(EPOCHS, ("--recipe.total-steps", "20"), "recipe.").total_epochs is None
    assert with_length(RECIPES["cifar10-mae"], ("--total-steps", "20")) is RECIPES["cifar10-mae"]
