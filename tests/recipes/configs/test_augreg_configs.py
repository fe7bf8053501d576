"""Recipes of "How to train your ViT?" and "Better plain ViT" against their papers and big_vision."""

import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Architecture, Augment, Optimizer
from keras_vit.weights.published import resolve

# arXiv 2106.10270, table of augmentations (big_vision, configs/vit_i1k.py): RandAugment layers and magnitude, mixup.
REGIMES = {
    "none": (0, None, 0.0),
    "light1": (2, 0, 0.0),
    "light2": (2, 10, 0.2),
    "medium1": (2, 15, 0.2),
    "medium2": (2, 15, 0.5),
    "strong1": (2, 20, 0.5),
    "strong2": (2, 20, 0.8),
}
AUGREG_MODELS = {
    "ti16": "Ti/16",
    "s32": "S/32",
    "s16": "S/16",
    "b32": "B/32",
    "b16": "B/16",
    "l16": "L/16",
    "r-ti16": "R+Ti/16",
    "r26-s32": "R26+S/32",
    "r50-l32": "R50+L/32",
}
# Files recommended in the README of google-research/vision_transformer. Its "light1" is the paper's light2.
RECOMMENDED = {
    "l16": "L_16-i21k-300ep-lr_0.001-aug_strong1-wd_0.1-do_0.0-sd_0.0",
    "b16": "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
    "s16": "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0",
    "r50-l32": "R50_L_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1",
    "r26-s32": "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
    "ti16": "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
    "b32": "B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
    "s32": "S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0",
    "r-ti16": "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
}


@pytest.mark.parametrize("data,head_bias", [("i1k", -6.9), ("i21k", -10.0)])
def test_augreg_matches_the_grid_of_the_paper(data, head_bias):
    for model, variant in AUGREG_MODELS.items():
        for regime, (layers, magnitude, mixup) in REGIMES.items():
            recipe = RECIPES[f"augreg-{data}-{model}-{regime}"]
            augment = recipe.data.augment
            assert recipe.architecture == Architecture(variant)
            assert (augment.randaugment_layers, augment.mixup_alpha, augment.cutmix_alpha) == (layers, mixup, 0.0)
            assert magnitude is None or augment.randaugment_magnitude == magnitude
            assert (recipe.total_epochs, recipe.data.batch_size, recipe.data.image_size) == (300, 4096, 224)
            assert recipe.optimizer == Optimizer("adamw", 1e-3, "cosine", warmup_steps=10_000, weight_decay=0.1)
            assert (recipe.loss, recipe.head_bias) == ("sigmoid", head_bias)


def test_augreg_defaults_match_big_vision():
    vit_i1k = {"ti16": "light1", "s32": "medium1", "s16": "medium2", "b32": "medium2", "b16": "medium2"}
    vit_i21k = {"ti16": "none", "s32": "none", "s16": "light1", "b32": "light2", "b16": "light2"}
    for data, regimes in (("i1k", vit_i1k), ("i21k", vit_i21k)):
        for model, regime in {**regimes, "l16": "medium2"}.items():
            assert RECIPES[f"augreg-{data}-{model}"] == RECIPES[f"augreg-{data}-{model}-{regime}"]


@pytest.mark.parametrize("model", RECOMMENDED)
def test_augreg_best_matches_the_recommended_file(model):
    parts = dict(
        part.split("_") for part in RECOMMENDED[model].split("-") if part.startswith(("aug", "wd", "do", "sd"))
    )
    recipe = RECIPES[f"augreg-i21k-{model}-best"]
    regime = "light2" if parts["aug"] == "light1" else parts["aug"]
    assert recipe.data == RECIPES[f"augreg-i21k-{model}-{regime}"].data
    assert recipe.optimizer.weight_decay == float(parts["wd"])
    assert recipe.architecture.dropout == float(parts["do"])
    assert recipe.architecture.stochastic_depth == float(parts["sd"])
    assert resolve(f"augreg/{RECOMMENDED[model]}")


@pytest.mark.parametrize("epochs,steps_of_99_percent", [(90, 111_477), (150, 185_794), (300, 371_589)])
def test_plain_s16_matches_the_report(epochs, steps_of_99_percent):
    """arXiv 2205.01580 and big_vision, configs/vit_s16_i1k.py."""
    recipe = RECIPES[f"plain-s16-{epochs}"]
    assert recipe.architecture == Architecture(
        "S/16",
        pooling="gap",
        representation_size=384,
        position_embedding="sincos_2d",
        dropout=0.0,
        stochastic_depth=0.0,
    )
    assert recipe.total_epochs == epochs
    assert recipe.optimizer == Optimizer(
        "adamw", 1e-3, "cosine", warmup_steps=10_000, weight_decay=1e-4 / 1e-3, global_clipnorm=1.0
    )
    data = recipe.data
    assert data.augment == Augment(randaugment_layers=2, randaugment_magnitude=10.0, mixup_alpha=0.2)
    assert (data.batch_size, data.train_split, data.evaluation_resize) == (1024, "train[:99%]", "shortest_area")
    assert data.evaluation_crop * 256 == 224
    assert (recipe.loss, recipe.label_smoothing) == ("softmax", 0.0)
    assert epochs * round(0.99 * 1_281_167) // data.batch_size == pytest.approx(steps_of_99_percent, abs=1)
