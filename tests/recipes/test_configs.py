"""Recipes against the tables of their papers, written down here once more; sources are named by each table."""

import ast
import math
from collections import Counter
from pathlib import Path

import pytest

from keras_vit.recipes import configs
from keras_vit.recipes.configs import RECIPES, SWEEPS, check_dataset, digits, join
from keras_vit.recipes.configs.bit import bit_hyperrule
from keras_vit.recipes.recipe import Architecture, Augment, Data, Distillation, MaskedPatch, Optimizer, Supervised
from keras_vit.variants import BIT_SIZES, parse_variant
from keras_vit.weights.published import resolve

# Table 3 of arXiv 2010.11929: variant, epochs, learning rate, decay, weight decay, dropout. All: Adam, batch 4096,
# 10,000 steps of warm-up, 224 pixels.
TABLE_3 = {
    "jft-b32": ("B/32", 7, 8e-4, "linear", 0.1, 0.0),
    "jft-b16": ("B/16", 7, 8e-4, "linear", 0.1, 0.0),
    "jft-l32": ("L/32", 7, 6e-4, "linear", 0.1, 0.0),
    "jft-l16": ("L/16", 7, 4e-4, "linear", 0.1, 0.0),
    "jft-l16-14ep": ("L/16", 14, 4e-4, "linear", 0.1, 0.0),
    "jft-h14": ("H/14", 14, 3e-4, "linear", 0.1, 0.0),
    "jft-r50x1": ("BiT-R50x1", 7, 1e-3, "linear", 0.1, 0.0),
    "jft-r101x1": ("BiT-R101x1", 7, 8e-4, "linear", 0.1, 0.0),
    "jft-r152x1": ("BiT-R152x1", 7, 6e-4, "linear", 0.1, 0.0),
    "jft-r50x2": ("BiT-R50x2", 7, 1e-3, "linear", 0.1, 0.0),
    "jft-r152x2": ("BiT-R152x2", 7, 6e-4, "linear", 0.1, 0.0),
    "jft-r50-b32": ("R50+B/32", 7, 8e-4, "linear", 0.1, 0.0),
    "jft-r50-b16": ("R50+B/16", 7, 8e-4, "linear", 0.1, 0.0),
    "jft-r50-l32": ("R50+L/32", 7, 2e-4, "linear", 0.1, 0.0),
    "jft-r50-l16": ("R50+L/16", 7, 4e-4, "linear", 0.1, 0.0),
    "jft-r50-l16-14ep": ("R50+L/16", 14, 4e-4, "linear", 0.1, 0.0),
    "imagenet21k-b16": ("B/16", 90, 1e-3, "linear", 0.03, 0.1),
    "imagenet21k-b32": ("B/32", 90, 1e-3, "linear", 0.03, 0.1),
    "imagenet21k-l16": ("L/16", 90, 1e-3, "linear", 0.03, 0.1),
    "imagenet21k-l32": ("L/32", 90, 1e-3, "linear", 0.03, 0.1),
    "imagenet21k-l16-30ep": ("L/16", 30, 1e-3, "linear", 0.03, 0.1),
    "imagenet21k-l32-30ep": ("L/32", 30, 1e-3, "linear", 0.03, 0.1),
    "imagenet1k-b16": ("B/16", 300, 3e-3, "cosine", 0.3, 0.1),
    "imagenet1k-b32": ("B/32", 300, 3e-3, "cosine", 0.3, 0.1),
    "imagenet1k-l16": ("L/16", 300, 3e-3, "cosine", 0.3, 0.1),
    "imagenet1k-l32": ("L/32", 300, 3e-3, "cosine", 0.3, 0.1),
}
# Table 4: steps and learning rates; with the warm-up of vit_jax and big_vision and the held-out percents of B.1.1.
TABLE_4 = {
    "finetune-imagenet": ("imagenet2012", 20_000, (0.003, 0.01, 0.03, 0.06), 500, 1, "validation"),
    "finetune-cifar100": ("cifar100", 10_000, (0.001, 0.003, 0.01, 0.03), 500, 2, "test"),
    "finetune-cifar10": ("cifar10", 10_000, (0.001, 0.003, 0.01, 0.03), 500, 2, "test"),
    "finetune-pets": ("oxford_iiit_pet", 500, (0.001, 0.003, 0.01, 0.03), 100, 10, "test"),
    "finetune-flowers": ("oxford_flowers102", 500, (0.001, 0.003, 0.01, 0.03), 100, 10, "test"),
}
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
# Names of the files that README of google-research/vision_transformer recommends. Its "light1" is the paper's light2.
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


@pytest.mark.parametrize("name", TABLE_3)
def test_pre_training_is_table_3(name):
    variant, epochs, rate, decay, weight_decay, dropout = TABLE_3[name]
    recipe = RECIPES[name]
    architecture, data, optimizer = recipe.architecture, recipe.data, recipe.optimizer
    assert (architecture.variant, architecture.dropout, architecture.stochastic_depth) == (variant, dropout, 0.0)
    assert architecture.pooling == "token" and architecture.position_embedding == "learned_1d"
    assert architecture.hidden_head == (not variant.startswith("BiT"))  # section 3.1
    assert (recipe.total_epochs, recipe.total_steps, recipe.weights) == (epochs, None, None)
    assert (optimizer.name, optimizer.warmup_steps, optimizer.ema_momentum) == ("adamw", 10_000, None)
    assert (optimizer.learning_rate, optimizer.decay, optimizer.weight_decay) == (rate, decay, weight_decay)
    assert optimizer.global_clipnorm == (1.0 if name.startswith("imagenet1k") else None)  # appendix B.1
    assert (data.batch_size, data.image_size, data.crop, data.min_crop_area) == (4096, 224, "inception", 0.05)
    assert data.flip and data.augment == Augment()
    assert (recipe.loss, recipe.label_smoothing, recipe.head_bias) == ("sigmoid", 0.0, -10.0)


def test_table_3_has_a_recipe_for_every_row_and_no_other_but_one():
    names = {name for name in RECIPES if name.startswith(("jft-", "imagenet1k-", "imagenet21k-"))}
    assert names == TABLE_3.keys() | {"imagenet21k-h14"}
    assert RECIPES["imagenet21k-h14"].total_epochs == 90


@pytest.mark.parametrize("name", TABLE_4)
def test_fine_tuning_is_table_4(name):
    dataset, steps, rates, warmup_steps, held_out, test_split = TABLE_4[name]
    recipe = RECIPES[name]
    data, optimizer = recipe.data, recipe.optimizer
    assert (data.dataset, data.image_size, data.batch_size) == (dataset, 384, 512)
    assert (data.crop, data.resize_size, data.evaluation_resize, data.flip) == ("resize", 448, "squash", True)
    assert (data.train_split, data.test_split) == ("train", test_split)
    assert (optimizer.name, optimizer.decay, optimizer.weight_decay) == ("sgd", "cosine", 0.0)
    assert (optimizer.global_clipnorm, optimizer.warmup_steps) == (1.0, warmup_steps)
    assert optimizer.ema_momentum is None and optimizer.learning_rate in rates
    assert (recipe.total_steps, recipe.total_epochs, recipe.loss) == (steps, None, "softmax")
    kept = 100 - held_out
    splits = {"tuning_split": f"train[:{kept}%]", "held_out_split": f"train[{kept}%:]"}
    assert SWEEPS[name] == {"learning_rates": rates, **splits}


@pytest.mark.parametrize("name,variant,size", [("l16-512", "L/16", 512), ("h14-518", "H/14", 518)])
def test_fine_tuning_of_table_2_averages_weights_at_a_higher_resolution(name, variant, size):
    recipe, common = RECIPES[f"finetune-imagenet-{name}"], RECIPES["finetune-imagenet"]
    assert (recipe.architecture.variant, recipe.data.image_size) == (variant, size)
    assert recipe.optimizer.ema_momentum == 0.9999
    assert recipe.data.resize_size == round(size * 448 / 384)
    assert (recipe.total_steps, recipe.optimizer.learning_rate) == (20_000, common.optimizer.learning_rate)
    assert SWEEPS[f"finetune-imagenet-{name}"] == SWEEPS["finetune-imagenet"]


@pytest.mark.parametrize("data,head_bias", [("i1k", -6.9), ("i21k", -10.0)])
def test_augreg_is_the_grid_of_its_paper(data, head_bias):
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


def test_augreg_defaults_are_those_of_big_vision():
    vit_i1k = {"ti16": "light1", "s32": "medium1", "s16": "medium2", "b32": "medium2", "b16": "medium2"}
    vit_i21k = {"ti16": "none", "s32": "none", "s16": "light1", "b32": "light2", "b16": "light2"}
    for data, regimes in (("i1k", vit_i1k), ("i21k", vit_i21k)):
        for model, regime in {**regimes, "l16": "medium2"}.items():
            assert RECIPES[f"augreg-{data}-{model}"] == RECIPES[f"augreg-{data}-{model}-{regime}"]


@pytest.mark.parametrize("model", RECOMMENDED)
def test_augreg_best_is_what_the_recommended_file_says(model):
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
def test_plain_s16_is_the_report(epochs, steps_of_99_percent):
    """arXiv 2205.01580 and big_vision, configs/vit_s16_i1k.py."""
    recipe = RECIPES[f"plain-s16-{epochs}"]
    assert recipe.architecture == Architecture(
        "S/16", pooling="gap", hidden_head=True, position_embedding="sincos_2d", dropout=0.0, stochastic_depth=0.0
    )
    assert recipe.total_epochs == epochs
    assert recipe.optimizer == Optimizer(
        "adamw", 1e-3, "cosine", warmup_steps=10_000, weight_decay=1e-4 / 1e-3, global_clipnorm=1.0
    )
    data = recipe.data
    assert data.augment == Augment(randaugment_layers=2, randaugment_magnitude=10.0, mixup_alpha=0.2)
    assert (data.batch_size, data.train_split, data.evaluation_resize) == (1024, "train[:99%]", "shortest")
    assert data.evaluation_crop * 256 == 224
    assert (recipe.loss, recipe.label_smoothing) == ("softmax", 0.0)
    assert epochs * round(0.99 * 1_281_167) // data.batch_size == pytest.approx(steps_of_99_percent, abs=1)


def test_masked_patch_is_appendix_b_1_2():
    recipe = RECIPES["masked-patch-b16"]
    assert recipe.architecture == Architecture("B/16")
    assert recipe.optimizer == Optimizer("adam", 2e-4, "cosine", warmup_steps=10_000)
    assert (recipe.data.batch_size, recipe.data.image_size, recipe.total_steps) == (4096, 224, 1_000_000)
    assert (recipe.target, recipe.corrupted_fraction) == ("mean_color", 0.5)
    assert (recipe.masked_share, recipe.replaced_share) == (0.8, 0.1)
    assert RECIPES["masked-patch-b16-downsampled"].target == "downsampled_color"
    assert RECIPES["masked-patch-b16-pixels"].target == "pixels"
    assert RECIPES["masked-patch-b16-corrupt15"].corrupted_fraction == 0.15
    assert RECIPES["masked-patch-imagenet-b16"].data.dataset == "imagenet2012"


@pytest.mark.parametrize("model,variant", [("ti16", "Ti/16"), ("s16", "S/16"), ("b16", "B/16")])
@pytest.mark.parametrize("kind", ["", "-hard", "-soft"])
def test_deit_is_its_paper(model, variant, kind):
    """arXiv 2012.12877, table 9 and section 5, and its code (main.py)."""
    recipe = RECIPES[f"deit-{model}{kind}"]
    assert recipe.architecture == Architecture(variant, dropout=0.0, stochastic_depth=0.1)
    optimizer, data = recipe.optimizer, recipe.data
    assert optimizer.learning_rate == pytest.approx(5e-4 * data.batch_size / 512) and data.batch_size == 1024
    assert (optimizer.name, optimizer.decay, optimizer.weight_decay) == ("adamw", "cosine", 0.05)
    assert optimizer.global_clipnorm is None
    assert optimizer.warmup_steps == math.floor(5 * 1_281_167 / 1024)
    assert data.augment == Augment(2, 9.0, erasing=0.25, mixup_alpha=0.8, cutmix_alpha=1.0)
    assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (data.interpolation, data.min_crop_area, data.evaluation_resize) == ("bicubic", 0.08, "shortest")
    assert (recipe.total_epochs, recipe.label_smoothing, recipe.loss) == (300, 0.1, "softmax")
    assert isinstance(recipe, Distillation) == bool(kind)
    if kind:
        shares = {"-hard": 0.5, "-soft": 0.1}
        assert (recipe.distillation, recipe.teacher_share) == (kind[1:], shares[kind])
        assert recipe.temperature == 3.0


def test_deit_at_384_is_the_command_of_its_readme():
    recipe = RECIPES["deit-b16-384"]
    assert (recipe.data.image_size, recipe.data.batch_size, recipe.total_epochs) == (384, 512, 30)
    assert (recipe.optimizer.learning_rate, recipe.optimizer.decay) == (5e-6, "constant")
    assert recipe.optimizer.weight_decay == 1e-8


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
    """Section 3.3 of arXiv 1912.11370; bounds and warm-up of google-research/big_transfer, bit_hyperrule.py."""
    recipe = bit_hyperrule(num_examples, side * side)
    data, optimizer = recipe.data, recipe.optimizer
    assert (recipe.total_steps, optimizer.warmup_steps, data.augment.mixup_alpha) == (steps, warmup_steps, mixup)
    assert (data.resize_size, data.image_size) == sizes
    assert (data.crop, data.flip, data.evaluation_resize, data.batch_size) == ("resize", True, "squash", 512)
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("sgd", 0.003, 0.0)
    assert (optimizer.decay, optimizer.staircase) == ("staircase", (0.3, 0.6, 0.9))


def test_bit_data_sets_get_the_rule_of_their_size():
    found = {name: (RECIPES[name].total_steps, RECIPES[name].data.image_size) for name in RECIPES if name[:4] == "bit-"}
    assert found == {
        "bit-imagenet": (20_000, 384),
        "bit-cifar10": (10_000, 128),
        "bit-cifar100": (10_000, 128),
        "bit-pets": (500, 384),
        "bit-flowers": (500, 384),
    }


def test_digits_keep_the_settings_of_their_published_results():
    masked, tuned = digits.MASKED_PATCH, digits.FINE_TUNE
    assert masked.architecture == tuned.architecture == Architecture("Ti/2", 4, 64, 256, 4)
    assert masked.data == Data(image_size=8, batch_size=64, min_crop_area=0.5, flip=False, cache=True)
    assert tuned.data == Data(image_size=14, batch_size=32, min_crop_area=0.7, flip=False, cache=True)
    assert masked.optimizer == Optimizer("adam", 1e-3, warmup_steps=100)
    assert tuned.optimizer == Optimizer("adamw", 1.5e-3, warmup_steps=40, weight_decay=0.05)
    assert (masked.total_steps, tuned.total_steps, tuned.weights) == (4_000, 600, None)


def test_cifar10_gives_both_starts_the_same_budget():
    scratch, tuned = RECIPES["cifar10-scratch"], RECIPES["cifar10-finetune"]
    assert (scratch.total_steps, scratch.data, scratch.run) == (tuned.total_steps, tuned.data, tuned.run)
    assert scratch.architecture == tuned.architecture == RECIPES["cifar10-masked-patch"].architecture
    # The 3-bit colours of 4 x 4 pixels are those of a whole patch of this size.
    assert parse_variant(scratch.architecture.variant)["patch_size"] == 4
    others = {name: RECIPES[name] for name in RECIPES if name.startswith("cifar10-masked-patch")}
    assert Counter(recipe.target for recipe in others.values()) == {
        "mean_color": 2,
        "downsampled_color": 1,
        "pixels": 1,
    }


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
    guide = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    # The grid of AugReg and the tasks of VTAB are described, not listed.
    missing = [name for name in RECIPES if not name.startswith(("augreg-", "vtab-")) and f"`{name}`" not in guide]
    assert not missing
