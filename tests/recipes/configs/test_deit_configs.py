"""DeiT recipes compared with the paper and its code."""

import math

import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Architecture, Augment, Distillation


@pytest.mark.parametrize("model,variant", [("ti16", "Ti/16"), ("s16", "S/16"), ("b16", "B/16")])
@pytest.mark.parametrize("kind", ["", "-hard", "-soft"])
def test_deit_matches_the_paper(model, variant, kind):
    """arXiv 2012.12877, table 9 and section 5, and its code (main.py)."""
    recipe = RECIPES[f"deit-{model}{kind}"]
    assert recipe.architecture == Architecture(variant, dropout=0.0, stochastic_depth=0.1)
    optimizer, data = recipe.optimizer, recipe.data
    assert optimizer.learning_rate == pytest.approx(5e-4 * data.batch_size / 512) and data.batch_size == 1024
    assert (optimizer.name, optimizer.decay, optimizer.weight_decay) == ("adamw", "cosine", 0.05)
    assert optimizer.global_clipnorm is None
    assert optimizer.warmup_steps == math.floor(5 * 1_281_167 / 1024)
    # --aa rand-m9-mstd0.5-inc1, bicubic with Pillow, which smooths what it shrinks.
    assert data.augment == Augment(2, 9.0, "timm", erasing=0.25, mixup_alpha=0.8, cutmix_alpha=1.0, repeats=3)
    assert data.antialias
    assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (data.interpolation, data.min_crop_area, data.evaluation_resize) == ("bicubic", 0.08, "shortest")
    assert (recipe.total_epochs, recipe.label_smoothing, recipe.loss) == (300, 0.1, "softmax")
    assert isinstance(recipe, Distillation) == bool(kind)
    if kind:
        alphas = {"-hard": 0.5, "-soft": 0.1}
        assert (recipe.distillation, recipe.distillation_alpha) == (kind[1:], alphas[kind])
        assert recipe.temperature == 3.0
        # Table 3: "usual distillation" is soft and without the token.
        assert recipe.distillation_token == (kind == "-hard")


def test_deit_at_384_matches_the_command_in_its_readme():
    recipe = RECIPES["deit-b16-384"]
    assert (recipe.data.image_size, recipe.data.batch_size, recipe.total_epochs) == (384, 512, 30)
    assert (recipe.optimizer.learning_rate, recipe.optimizer.decay) == (5e-6, "constant")
    assert recipe.optimizer.weight_decay == 1e-8
    assert recipe.architecture == Architecture("B/16")  # without stochastic depth: it was fine-tuned in evaluation mode
    # main.py: a head of the same shape is loaded, positions are interpolated with mode="bicubic".
    assert recipe.keep_head and recipe.resample == "bicubic"
