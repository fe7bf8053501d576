"""Recipes small enough for a laptop."""

from collections import Counter

from keras_vit.recipes.configs import RECIPES, digits
from keras_vit.recipes.recipe import Architecture, Data, Optimizer
from keras_vit.variants import parse_variant


def test_digits_have_the_settings_of_the_documented_results():
    masked, tuned = digits.MASKED_PATCH, digits.FINE_TUNE
    assert masked.architecture == tuned.architecture == Architecture("Ti/2", 4, 64, 256, 4)
    assert masked.data == Data(image_size=8, batch_size=64, min_crop_area=0.5, flip=False, cache=True)
    assert tuned.data == Data(image_size=14, batch_size=32, min_crop_area=0.7, flip=False, cache=True)
    assert masked.optimizer == Optimizer("adam", 1e-3, warmup_steps=100)
    assert tuned.optimizer == Optimizer("adamw", 1.5e-3, warmup_steps=40, weight_decay=0.05)
    assert (masked.total_steps, tuned.total_steps, tuned.weights) == (3_000, 500, None)


def operations_of_blocks(depth, width, mlp_dim, tokens):
    return depth * (tokens * (4 * width**2 + 2 * width * mlp_dim) + 2 * tokens**2 * width)


def test_pretraining_recipes_of_cifar10_cost_the_same():
    masked, autoencoder = RECIPES["cifar10-masked-patch"], RECIPES["cifar10-mae"]
    width = autoencoder.decoder_width
    encoder = operations_of_blocks(6, 192, 384, tokens=16)
    decoder = operations_of_blocks(autoencoder.decoder_depth, width, 4 * width, tokens=64)
    full = operations_of_blocks(6, 192, 384, tokens=64)
    ratio = (encoder + decoder) * autoencoder.total_steps / (full * masked.total_steps)
    assert abs(ratio - 1) < 0.03


def test_cifar10_budget_does_not_depend_on_the_initial_weights():
    scratch, tuned = RECIPES["cifar10-scratch"], RECIPES["cifar10-finetune"]
    assert (scratch.total_steps, scratch.data, scratch.run) == (tuned.total_steps, tuned.data, tuned.run)
    assert scratch.architecture == tuned.architecture == RECIPES["cifar10-masked-patch"].architecture
    masked, autoencoder = RECIPES["cifar10-masked-patch"], RECIPES["cifar10-mae"]
    assert (autoencoder.architecture, autoencoder.data) == (masked.architecture, masked.data)
    # A patch has 4 x 4 pixels, so "downsampled_color" does not reduce it.
    assert parse_variant(scratch.architecture.variant)["patch_size"] == 4
    others = {name: RECIPES[name] for name in RECIPES if name.startswith("cifar10-masked-patch")}
    assert Counter(recipe.target for recipe in others.values()) == {
        "mean_color": 2,
        "downsampled_color": 1,
        "pixels": 1,
    }
