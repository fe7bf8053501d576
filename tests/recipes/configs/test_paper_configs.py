"""Recipes against numbers that papers and published files report beside their settings, and Tables 3 and 4 of ViT."""

import pytest

from keras_vit.recipes.configs import RECIPES, SWEEPS
from keras_vit.recipes.configs.bit import bit_hyperrule
from keras_vit.variants import parse_variant
from keras_vit.weights.published import resolve

IMAGENET = 1_281_167  # images
# Table 3 of arXiv 2010.11929, per group: epochs, decay, weight decay, dropout, clipping (appendix B.1), learning rates.
TABLE_3 = [
    ("jft-{}", 7, "linear", 0.1, 0.0, None, {"b32": 8e-4, "b16": 8e-4, "l32": 6e-4, "l16": 4e-4, "r50x1": 1e-3}),
    ("jft-{}", 7, "linear", 0.1, 0.0, None, {"r101x1": 8e-4, "r152x1": 6e-4, "r50x2": 1e-3, "r152x2": 6e-4}),
    ("jft-r50-{}", 7, "linear", 0.1, 0.0, None, {"b32": 8e-4, "b16": 8e-4, "l32": 2e-4, "l16": 4e-4}),
    ("jft-{}", 14, "linear", 0.1, 0.0, None, {"l16-14ep": 4e-4, "r50-l16-14ep": 4e-4, "h14": 3e-4}),
    ("imagenet21k-{}", 90, "linear", 0.03, 0.1, None, {"b16": 1e-3, "b32": 1e-3, "l16": 1e-3, "l32": 1e-3}),
    ("imagenet21k-{}-30ep", 30, "linear", 0.03, 0.1, None, {"l16": 1e-3, "l32": 1e-3}),
    ("imagenet1k-{}", 300, "cosine", 0.3, 0.1, 1.0, {"b16": 3e-3, "b32": 3e-3, "l16": 3e-3, "l32": 3e-3}),
]
# Table 4: steps, learning rates; warmup of vit_jax and big_vision; held-out percentage of appendix B.1.1.
TABLE_4 = [
    ("finetune-imagenet", 20_000, (0.003, 0.01, 0.03, 0.06), 500, 1),
    ("finetune-cifar100", 10_000, (0.001, 0.003, 0.01, 0.03), 500, 2),
    ("finetune-cifar10", 10_000, (0.001, 0.003, 0.01, 0.03), 500, 2),
    ("finetune-pets", 500, (0.001, 0.003, 0.01, 0.03), 100, 10),
    ("finetune-flowers", 500, (0.001, 0.003, 0.01, 0.03), 100, 10),
]
# Table 6, in exaFLOPs, published beside the accuracies: they follow from architecture, epochs and 303 million images.
TABLE_6 = {"b32": 55, "b16": 224, "l32": 196, "l16": 783, "l16-14ep": 1567, "h14": 4262}
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


@pytest.mark.parametrize("name,epochs,decay,weight_decay,dropout,clipnorm,rates", TABLE_3)
def test_pretraining_matches_table_3(name, epochs, decay, weight_decay, dropout, clipnorm, rates):
    for model, rate in rates.items():
        recipe = RECIPES[name.format(model)]
        data, optimizer, architecture = recipe.data, recipe.optimizer, recipe.architecture
        assert (recipe.total_epochs, recipe.total_steps, recipe.weights, recipe.loss) == (epochs, None, None, "sigmoid")
        assert (optimizer.name, optimizer.learning_rate, optimizer.decay) == ("adamw", rate, decay)
        assert (optimizer.weight_decay, optimizer.global_clipnorm) == (weight_decay, clipnorm)
        assert (data.batch_size, optimizer.warmup_steps, data.image_size) == (4096, 10_000, 224)
        assert (architecture.dropout, architecture.stochastic_depth) == (dropout, 0.0)
        is_bit = architecture.variant.startswith("BiT")  # the head of the others has a hidden layer: section 3.1
        assert architecture.representation_size == (None if is_bit else parse_variant(architecture.variant)["width"])


def test_recipes_are_the_rows_of_table_3_and_h14():
    rows = {name.format(model) for name, *_, rates in TABLE_3 for model in rates}
    assert rows | {"imagenet21k-h14"} == {
        name for name in RECIPES if name.startswith(("jft-", "imagenet1k-", "imagenet21k-"))
    }


@pytest.mark.parametrize("name,steps,rates,warmup_steps,held_out", TABLE_4)
def test_fine_tuning_matches_table_4(name, steps, rates, warmup_steps, held_out):
    recipe, kept = RECIPES[name], 100 - held_out
    data, optimizer = recipe.data, recipe.optimizer
    assert (data.image_size, data.resize_size, data.batch_size, data.train_split) == (384, 448, 512, "train")
    assert (optimizer.name, optimizer.decay, optimizer.weight_decay) == ("sgd", "cosine", 0.0)
    assert (optimizer.global_clipnorm, optimizer.warmup_steps, recipe.total_steps) == (1.0, warmup_steps, steps)
    assert optimizer.learning_rate in rates
    splits = {"tuning_split": f"train[:{kept}%]", "held_out_split": f"train[{kept}%:]"}
    assert SWEEPS[name] == {"learning_rates": rates, **splits}


@pytest.mark.parametrize("name", TABLE_6)
def test_compute_of_jft_recipes_equals_table_6(name):
    recipe = RECIPES[f"jft-{name}"]
    sizes = parse_variant(recipe.architecture.variant)
    patch, width = sizes["patch_size"], sizes["width"]
    tokens = (recipe.data.image_size // patch) ** 2 + 1
    block = 4 * width**2 + 2 * width * sizes["mlp_dim"] + 2 * tokens * width  # multiply-adds per token
    multiply_adds = tokens * sizes["depth"] * block + (tokens - 1) * 3 * patch**2 * width
    # Forward and backward pass are three forward passes, of two operations per multiply-add.
    assert 6 * multiply_adds * 303e6 * recipe.total_epochs / 1e18 == pytest.approx(TABLE_6[name], rel=0.03)


def test_sweeps_of_vtab_hold_out_the_200_validation_images():
    sweep = SWEEPS["vtab-eurosat"]
    assert sweep == {"tuning_split": "train[:800]", "held_out_split": "train[16200:16400]"}
    assert RECIPES["vtab-eurosat"].data.train_split == "+".join(sweep.values())


@pytest.mark.parametrize("model", RECOMMENDED)
def test_augreg_best_matches_the_recommended_file(model):
    settings = (part.split("_") for part in RECOMMENDED[model].split("-") if part[:2] in ("au", "wd", "do", "sd"))
    expected, recipe = dict(settings), RECIPES[f"augreg-i21k-{model}-best"]
    regime = "light2" if expected["aug"] == "light1" else expected["aug"]
    assert recipe.data == RECIPES[f"augreg-i21k-{model}-{regime}"].data
    assert recipe.optimizer.weight_decay == float(expected["wd"])
    assert recipe.architecture.dropout == float(expected["do"])
    assert recipe.architecture.stochastic_depth == float(expected["sd"])
    assert resolve(f"augreg/{RECOMMENDED[model]}")


@pytest.mark.parametrize("epochs,steps_of_99_percent", [(90, 111_477), (150, 185_794), (300, 371_589)])
def test_plain_s16_has_the_steps_of_the_report(epochs, steps_of_99_percent):
    """arXiv 2205.01580 and big_vision, configs/vit_s16_i1k.py; `weight_decay` is relative to the learning rate."""
    recipe = RECIPES[f"plain-s16-{epochs}"]
    assert (recipe.data.train_split, recipe.data.evaluation_crop * 256) == ("train[:99%]", 224)
    assert recipe.optimizer.weight_decay * recipe.optimizer.learning_rate == pytest.approx(1e-4)
    assert epochs * round(0.99 * IMAGENET) // recipe.data.batch_size == pytest.approx(steps_of_99_percent, abs=1)


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
    assert (optimizer.learning_rate, optimizer.decay, optimizer.staircase) == (0.003, "staircase", (0.3, 0.6, 0.9))


def test_lengths_and_rates_of_other_papers():
    """MAE's Tables 8 and 9, DeiT's Table 9: epochs as steps, learning rates for a batch of 256 or 512 images."""
    mae, tuning, deit = (RECIPES[name] for name in ("mae-b16", "mae-b16-finetune", "deit-s16"))
    epochs = [steps * 4096 / IMAGENET for steps in (mae.optimizer.warmup_steps, mae.total_steps)]
    assert epochs == pytest.approx([40, 800], abs=0.01)
    assert mae.optimizer.learning_rate == pytest.approx(1.5e-4 * 4096 / 256)
    assert tuning.optimizer.learning_rate == pytest.approx(5e-4 * 1024 / 256)
    for recipe in (tuning, deit):
        assert recipe.optimizer.warmup_steps == pytest.approx(5 * IMAGENET / 1024, abs=1)
    assert deit.optimizer.learning_rate == pytest.approx(5e-4 * 1024 / 512)
    for name in ("deit3-b16", "deit3-l16"):  # README_revenge.md: --lr 1e-5; main.py: --min-lr 1e-5
        assert (RECIPES[name].optimizer.learning_rate, RECIPES[name].optimizer.decay) == (1e-5, "constant")
    assert RECIPES["deit-s16-soft"].distillation_token is False and RECIPES["deit-s16-hard"].distillation_token


def test_pretraining_recipes_of_cifar10_cost_the_same():
    def operations(depth, width, mlp_dim, tokens):
        return depth * (tokens * (4 * width**2 + 2 * width * mlp_dim) + 2 * tokens**2 * width)

    masked, autoencoder = RECIPES["cifar10-masked-patch"], RECIPES["cifar10-mae"]
    width = autoencoder.decoder_width
    encoder = operations(6, 192, 384, tokens=16)
    decoder = operations(autoencoder.decoder_depth, width, 4 * width, tokens=64)
    whole = operations(6, 192, 384, tokens=64)
    assert (encoder + decoder) * autoencoder.total_steps == pytest.approx(whole * masked.total_steps, rel=0.03)
    scratch, tuned = RECIPES["cifar10-scratch"], RECIPES["cifar10-finetune"]
    assert (scratch.total_steps, scratch.data, scratch.run) == (tuned.total_steps, tuned.data, tuned.run)
