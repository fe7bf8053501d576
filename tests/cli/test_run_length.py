"""The length of a run is given once: steps replace epochs."""

import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit_cli.main import main
from keras_vit_cli.run_length import with_length

EPOCHS, STEPS = RECIPES["cifar10-10ep"], RECIPES["cifar10-scratch"]


@pytest.mark.parametrize(
    "recipe,options,steps,epochs",
    [
        (EPOCHS, "--total-steps 20", None, None),  # the option is applied later
        (EPOCHS, "--total_steps=20 --total-epochs None", None, None),
        (EPOCHS, "--total-epochs 3 --run.seed 1", None, 10),
        (STEPS, "--total-epochs=0.5", None, None),
        (STEPS, "--total-epochs None", 2000, None),
        (STEPS, "--total-steps", 2000, None),  # its value is missing, which tyro reports
    ],
)
def test_one_length_replaces_the_other(recipe, options, steps, epochs):
    found = with_length(recipe, tuple(options.split()))
    assert (found.total_steps, found.total_epochs) == (steps, epochs)


def test_prefix_and_recipes_without_epochs():
    assert with_length(EPOCHS, ("--recipe.total-steps", "20"), "recipe.").total_epochs is None
    assert with_length(RECIPES["cifar10-mae"], ("--total-steps", "20")) is RECIPES["cifar10-mae"]


@pytest.mark.parametrize("command,prefix", [("train", ""), ("sweep", "recipe."), ("preflight", "")])
def test_both_lengths_are_an_error(command, prefix, capsys):
    options = [f"--{prefix}total-steps", "20", f"--{prefix}total-epochs=3"]
    assert main([command, "cifar10-10ep", *options]) == 1
    error = f"Received: --{prefix}total-steps 20 and --{prefix}total-epochs 3. Omit one of them."
    assert error in capsys.readouterr().err
    assert main([command, "cifar10-10ep", *options[:2]]) == 1
    assert f"Use --{prefix}optimizer.warmup-steps 2." in capsys.readouterr().err
