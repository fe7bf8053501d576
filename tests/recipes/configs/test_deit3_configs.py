"""DeiT III's recipes compared with the commands in README_revenge.md of facebookresearch/deit."""

from dataclasses import replace

import numpy as np
import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Architecture, Augment
from keras_vit.recipes.training.model import build_model

# name: variant, --input-size, --lr, --drop-path
PRETRAINING = {
    "deit3-s16": ("S/16", 224, 4e-3, 0.05),
    "deit3-b16-192": ("B/16", 192, 3e-3, 0.2),
    "deit3-l16-192": ("L/16", 192, 3e-3, 0.45),
}


@pytest.mark.parametrize("name", PRETRAINING)
def test_pretraining(name):
    """256 images on each of 8 GPUs (L: 64 on 32), LAMB, the binary loss, 3-Augment, repeated augmentation."""
    recipe, (variant, size, rate, depth) = RECIPES[name], PRETRAINING[name]
    depths = (depth,) * (24 if variant == "L/16" else 12)
    assert recipe.architecture == Architecture(variant, layer_scale=1e-4, stochastic_depth=depths)
    data, optimizer = recipe.data, recipe.optimizer
    assert (data.image_size, data.batch_size, data.crop, data.min_crop_area) == (size, 2048, "inception", 0.08)
    assert data.augment == Augment(three_augment=True, mixup_alpha=0.8, cutmix_alpha=1.0, repeats=3)
    assert (data.evaluation_crop, data.interpolation, data.antialias) == (1.0, "bicubic", True)
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("lamb", rate, 0.05)
    assert (optimizer.decay, optimizer.warmup_steps, optimizer.global_clipnorm) == ("cosine", 5 * 1281167 // 2048, 1.0)
    assert (recipe.loss, recipe.label_smoothing, recipe.total_epochs, recipe.weights) == ("binary", 0.0, 800, None)


@pytest.mark.parametrize("name,depth", [("b16", (0.2,) * 12), ("l16", (0.45,) * 24)])
def test_fine_tuning_at_224(name, depth):
    recipe = RECIPES[f"deit3-{name}"]
    assert recipe.architecture == RECIPES[f"deit3-{name}-192"].architecture
    assert recipe.architecture.stochastic_depth == depth
    assert recipe.weights == f"runs/deit3-{name}-192/model.keras"
    assert recipe.keep_head and recipe.resample == "bicubic"
    data, optimizer = recipe.data, recipe.optimizer
    assert (data.image_size, data.batch_size, data.evaluation_crop) == (224, 512, 1.0)
    assert data.augment == Augment(2, 9.0, "timm", mixup_alpha=0.8, cutmix_alpha=1.0)
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("adamw", 1e-5, 0.1)
    assert (optimizer.warmup_steps, optimizer.global_clipnorm) == (5 * 1281167 // 512, None)
    assert (recipe.loss, recipe.label_smoothing, recipe.total_epochs) == ("softmax", 0.1, 20)


def test_layer_scale_and_stochastic_depth_reach_the_model():
    recipe = RECIPES["deit3-s16"]
    small = replace(recipe.architecture, width=12, mlp_dim=24, num_heads=3)
    model = build_model(small, replace(recipe.data, image_size=32), recipe.run, num_classes=2)
    gammas = [weight for weight in model.weights if "scale" in weight.path]
    assert [block.drop_mlp.rate for block in model.encoder.blocks] == [0.05] * 12
    assert len(gammas) == 2 * 12 and all(np.all(np.asarray(gamma) == np.float32(1e-4)) for gamma in gammas)
