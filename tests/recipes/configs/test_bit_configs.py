"""BiT-HyperRule compared with its paper and code."""

import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.configs.bit import bit_hyperrule


@pytest.mark.parametrize(
    "num_examples,side,steps,warmup_steps,sizes,mixup",
    [
        (10, 32, 500, 100, (160, 128), 0.0),
        (19_999, 96, 500, 100, (448, 384), 0.0),
        (20_000, 95, 10_000, 500, (160, 128), 0.1),
        (499_999, 96, 10_000, 500, (448, 384), 0.1),
        (500_000, 224, 20_000, 500, (448, 384), 0.1),
    ],
)
def test_bit_hyperrule(num_examples, side, steps, warmup_steps, sizes, mixup):
    """Section 3.3 of arXiv 1912.11370; thresholds and warmup of google-research/big_transfer, bit_hyperrule.py."""
    recipe = bit_hyperrule(num_examples, side * side)
    data, optimizer = recipe.data, recipe.optimizer
    assert (recipe.total_steps, optimizer.warmup_steps, data.augment.mixup_alpha) == (steps, warmup_steps, mixup)
    assert (data.resize_size, data.image_size) == sizes
    assert (data.crop, data.flip, data.evaluation_resize, data.batch_size) == ("resize", True, "squash", 512)
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("sgd", 0.003, 0.0)
    assert (optimizer.decay, optimizer.staircase) == ("staircase", (0.3, 0.6, 0.9))


def test_bit_recipes_follow_the_size_of_their_data():
    found = {name: (RECIPES[name].total_steps, RECIPES[name].data.image_size) for name in RECIPES if name[:4] == "bit-"}
    assert found == {
        "bit-imagenet": (20_000, 384),
        "bit-cifar10": (10_000, 128),
        "bit-cifar100": (10_000, 128),
        "bit-pets": (500, 384),
        "bit-flowers": (500, 384),
    }
