"""Recipes compared with the tables of the paper, which are repeated here."""

from dataclasses import replace

import pytest

from keras_vit.recipes.configs import RECIPES, SWEEPS
from keras_vit.recipes.recipe import Architecture, Augment, MaskedAutoencoder, Optimizer
from keras_vit.variants import parse_variant

# Table 3 of arXiv 2010.11929: variant, epochs, learning rate, decay, weight decay, dropout. All: Adam, batch size 4096,
# 10,000 warmup steps, 224 pixels.
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
WIDTHS = {"B": 768, "L": 1024, "H": 1280}  # Table 1
# Table 4: steps and learning rates; warmup of vit_jax and big_vision; held-out percentage of appendix B.1.1.
TABLE_4 = {
    "finetune-imagenet": ("imagenet2012", 20_000, (0.003, 0.01, 0.03, 0.06), 500, 1, "validation"),
    "finetune-cifar100": ("cifar100", 10_000, (0.001, 0.003, 0.01, 0.03), 500, 2, "test"),
    "finetune-cifar10": ("cifar10", 10_000, (0.001, 0.003, 0.01, 0.03), 500, 2, "test"),
    "finetune-pets": ("oxford_iiit_pet", 500, (0.001, 0.003, 0.01, 0.03), 100, 10, "test"),
    "finetune-flowers": ("oxford_flowers102", 500, (0.001, 0.003, 0.01, 0.03), 100, 10, "test"),
}


@pytest.mark.parametrize("name", TABLE_3)
def test_pretraining_matches_table_3(name):
    variant, epochs, rate, decay, weight_decay, dropout = TABLE_3[name]
    recipe = RECIPES[name]
    architecture, data, optimizer = recipe.architecture, recipe.data, recipe.optimizer
    assert (architecture.variant, architecture.dropout, architecture.stochastic_depth) == (variant, dropout, 0.0)
    assert architecture.pooling == "token" and architecture.position_embedding == "learned_1d"
    is_bit = variant.startswith("BiT")
    assert architecture.representation_size == (
        None if is_bit else WIDTHS[variant.rpartition("+")[2][0]]
    )  # section 3.1
    assert (recipe.total_epochs, recipe.total_steps, recipe.weights) == (epochs, None, None)
    assert (optimizer.name, optimizer.warmup_steps, optimizer.ema_momentum) == ("adamw", 10_000, None)
    assert (optimizer.learning_rate, optimizer.decay, optimizer.weight_decay) == (rate, decay, weight_decay)
    assert optimizer.global_clipnorm == (1.0 if name.startswith("imagenet1k") else None)  # appendix B.1
    assert (data.batch_size, data.image_size, data.crop, data.min_crop_area) == (4096, 224, "inception", 0.05)
    assert data.flip and data.augment == Augment()
    # Issues 89 and 153 of google-research/vision_transformer; issue 2 has none for ImageNet-21k.
    smoothing = 1e-4 if name.startswith("imagenet1k") else 0.0
    assert (recipe.loss, recipe.label_smoothing, recipe.head_bias) == ("sigmoid", smoothing, -10.0)


# Table 6, in exaFLOPs, published beside the accuracies: they follow from architecture, epochs and 303 million images.
TABLE_6 = {"b32": 55, "b16": 224, "l32": 196, "l16": 783, "l16-14ep": 1567, "h14": 4262}


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


def test_recipes_are_the_rows_of_table_3_and_h14():
    names = {name for name in RECIPES if name.startswith(("jft-", "imagenet1k-", "imagenet21k-"))}
    assert names == TABLE_3.keys() | {"imagenet21k-h14"}
    assert RECIPES["imagenet21k-h14"].total_epochs == 90


@pytest.mark.parametrize("name", TABLE_4)
def test_fine_tuning_matches_table_4(name):
    dataset, steps, rates, warmup_steps, held_out, test_split = TABLE_4[name]
    recipe = RECIPES[name]
    data, optimizer = recipe.data, recipe.optimizer
    assert (data.dataset, data.image_size, data.batch_size) == (dataset, 384, 512)
    assert (data.crop, data.resize_size, data.evaluation_resize, data.flip) == ("resize", 448, "squash", True)
    assert (data.train_split, data.validation_split, data.test_split) == ("train", None, test_split)
    assert (optimizer.name, optimizer.decay, optimizer.weight_decay) == ("sgd", "cosine", 0.0)
    assert (optimizer.global_clipnorm, optimizer.warmup_steps) == (1.0, warmup_steps)
    assert optimizer.ema_momentum is None and optimizer.learning_rate in rates
    assert (recipe.total_steps, recipe.total_epochs, recipe.loss) == (steps, None, "softmax")
    kept = 100 - held_out
    splits = {"tuning_split": f"train[:{kept}%]", "held_out_split": f"train[{kept}%:]"}
    assert SWEEPS[name] == {"learning_rates": rates, **splits}


@pytest.mark.parametrize("name,variant,size", [("l16-512", "L/16", 512), ("h14-518", "H/14", 518)])
def test_fine_tuning_of_table_2_has_ema_and_a_higher_resolution(name, variant, size):
    recipe, common = RECIPES[f"finetune-imagenet-{name}"], RECIPES["finetune-imagenet"]
    assert (recipe.architecture.variant, recipe.data.image_size) == (variant, size)
    assert recipe.optimizer.ema_momentum == 0.9999
    assert recipe.data.resize_size == round(size * 448 / 384)
    assert (recipe.total_steps, recipe.optimizer.learning_rate) == (20_000, common.optimizer.learning_rate)
    assert SWEEPS[f"finetune-imagenet-{name}"] == SWEEPS["finetune-imagenet"]


def test_sweeps_of_vtab_hold_out_the_200_validation_images():
    sweep, data = SWEEPS["vtab-eurosat"], RECIPES["vtab-eurosat"].data
    assert sweep == {"tuning_split": "train[:800]", "held_out_split": "train[16200:16400]"}
    assert data.train_split == "+".join(sweep.values())


def test_masked_patch_matches_appendix_b_1_2():
    recipe = RECIPES["masked-patch-b16"]
    assert recipe.architecture == Architecture("B/16")
    assert recipe.optimizer == Optimizer("adam", 2e-4, "cosine", warmup_steps=10_000)
    assert (recipe.data.batch_size, recipe.data.image_size, recipe.total_steps) == (4096, 224, 1_000_000)
    assert (recipe.target, recipe.corrupted_fraction) == ("mean_color", 0.5)
    assert (recipe.masked_fraction, recipe.replaced_fraction) == (0.8, 0.1)
    assert RECIPES["masked-patch-b16-downsampled"].target == "downsampled_color"
    assert RECIPES["masked-patch-b16-pixels"].target == "pixels"
    assert RECIPES["masked-patch-b16-corrupt15"].corrupted_fraction == 0.15
    assert RECIPES["masked-patch-imagenet-b16"].data.dataset == "imagenet2012"


def test_masked_autoencoder_matches_table_8():
    recipe, larger = RECIPES["mae-b16"], RECIPES["mae-l16"]
    defaults = MaskedAutoencoder()
    assert recipe.architecture == defaults.architecture and recipe.optimizer == defaults.optimizer
    assert larger == replace(recipe, architecture=replace(recipe.architecture, variant="L/16"))
    optimizer, data = recipe.optimizer, recipe.data
    assert (optimizer.name, optimizer.decay) == ("adamw", "cosine")
    assert (optimizer.beta_2, optimizer.weight_decay) == (0.95, 0.05)
    assert optimizer.learning_rate == pytest.approx(1.5e-4 * 4096 / 256) and optimizer.global_clipnorm is None
    assert (data.batch_size, data.crop, data.min_crop_area, data.interpolation) == (4096, "inception", 0.2, "bicubic")
    assert data.flip and data.augment == Augment() and data.train_split == "train"
    epochs = [steps * 4096 / 1_281_167 for steps in (optimizer.warmup_steps, recipe.total_steps)]
    assert epochs == pytest.approx([40, 800], abs=0.01)
    assert (recipe.masked_fraction, recipe.normalize_targets) == (0.75, True)
    assert (recipe.decoder_depth, recipe.decoder_width, recipe.decoder_heads) == (8, 512, 16)


def test_fine_tuning_of_masked_autoencoders_matches_its_code():
    for name, rate, layer_decay, drop_path, epochs in (("b16", 2e-3, 0.65, 0.1, 100), ("l16", 4e-3, 0.75, 0.2, 50)):
        recipe = RECIPES[f"mae-{name}-finetune"]
        optimizer, augment = recipe.optimizer, recipe.data.augment
        assert (optimizer.name, optimizer.learning_rate, optimizer.layer_decay) == ("adamw", rate, layer_decay)
        assert (optimizer.weight_decay, optimizer.global_clipnorm, optimizer.beta_2) == (0.05, None, 0.999)
        assert optimizer.warmup_steps == pytest.approx(5 * 1_281_167 / 1024, abs=1)
        assert (recipe.architecture.stochastic_depth, recipe.total_epochs, recipe.label_smoothing) == (
            drop_path,
            epochs,
            0.1,
        )
        assert (augment.erasing, augment.mixup_alpha, augment.cutmix_alpha, augment.repeats) == (0.25, 0.8, 1.0, 1)
        assert (augment.randaugment_layers, augment.randaugment_magnitude) == (2, 9) and recipe.data.batch_size == 1024
        assert recipe.weights == f"runs/mae-{name}/model.keras"
