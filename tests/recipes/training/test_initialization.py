"""Start weights against the deviations and bounds of the authors' code."""

import math

import numpy as np
import pytest

from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import Architecture, Data, MaskedAutoencoder, Run, Supervised
from keras_vit.recipes.runs.self_supervised import compile_self_supervised
from keras_vit.recipes.runs.supervised import compile_classifier

SIZES = {"depth": 1, "width": 96, "mlp_dim": 384, "num_heads": 3}
NORMAL, PATCH_LIMIT = 0.02, 1 / math.sqrt(16 * 16 * 3)


def weights_of(initialization, seed=0):
    """Weights by the end of their path, of a DeiT III or of a masked autoencoder."""
    data, run = Data(image_size=64), Run(seed=seed)
    if initialization == "mae":
        architecture = Architecture("Ti/16", **SIZES, pooling="token", initialization="mae")
        recipe = MaskedAutoencoder(architecture, data=data, run=run, decoder_depth=1, decoder_width=48, decoder_heads=3)
        model = compile_self_supervised(recipe)
    else:
        architecture = Architecture("Ti/16", **SIZES, layer_scale=1e-4, initialization=initialization)
        model, _ = compile_classifier(Supervised(architecture, data=data, run=run), 100, 20_001)
    return {weight.path.split("/", 1)[1]: np.array(weight) for weight in model.weights}


def assert_uniform(values, limit):
    assert 0.98 * limit < np.abs(values).max() <= limit * (1 + 1e-6)
    assert values.std() == pytest.approx(limit / math.sqrt(3), rel=0.05)


def test_deit_has_normal_weights_and_pytorchs_patch_embedding():
    """timm 0.3.2, vision_transformer.py: `trunc_normal_` truncates at -2 and 2, not at 2 deviations."""
    weights = weights_of("deit")
    assert_uniform(weights.pop("patch_embedding/projection/kernel"), PATCH_LIMIT)
    assert np.abs(bias := weights.pop("patch_embedding/projection/bias")).max() <= PATCH_LIMIT and bias.std() > 0.015
    drawn = {"class_token/token", "positions/table", *(name for name in weights if name.endswith("/kernel"))}
    assert len(drawn) == 7 and "head/kernel" in drawn
    for name in drawn:
        values = weights.pop(name)
        assert values.std() == pytest.approx(NORMAL, rel=0.25 if values.size < 100 else 0.05)
        assert np.abs(values).max() > 2.2 * NORMAL
    for name, values in weights.items():
        expected = 1e-4 if "/scale_" in name else 1.0 if name.endswith("/gamma") else 0.0
        np.testing.assert_array_equal(values, np.float32(expected))


def test_mae_has_xavier_kernels_and_normal_tokens():
    """facebookresearch/mae, models_mae.py, initialize_weights; its decoder too."""
    weights = weights_of("mae")
    bounds = {
        "patch_embedding/projection/kernel": math.sqrt(6 / (768 + 96)),
        "encoder/block_0/attention/qkv/kernel": math.sqrt(6 / (96 + 3 * 96)),
        "encoder/block_0/mlp/hidden/kernel": math.sqrt(6 / (96 + 384)),
        "decoder_embedding/kernel": math.sqrt(6 / (96 + 48)),
        "decoder/block_0/attention/qkv/kernel": math.sqrt(6 / (48 + 3 * 48)),
        "head/kernel": math.sqrt(6 / (48 + 768)),
    }
    for name, limit in bounds.items():
        assert_uniform(weights[name], limit)
    assert np.abs(weights["patch_embedding/projection/bias"]).max() <= PATCH_LIMIT
    for name in ("class_token/token", "mask"):
        assert weights[name].std() == pytest.approx(NORMAL, rel=0.3)
    assert not np.any(weights["encoder/block_0/mlp/hidden/bias"]) and not np.any(weights["head/bias"])


@pytest.mark.parametrize("initialization", ["deit", "mae"])
def test_the_seed_of_the_recipe_determines_the_weights(initialization):
    weights, same, other = (weights_of(initialization, seed) for seed in (3, 3, 4))
    for name, values in weights.items():
        np.testing.assert_array_equal(values, same[name])
        if name.endswith("kernel"):
            assert np.abs(values - other[name]).max() > NORMAL


def test_recipes_of_deit_and_mae_start_as_their_code():
    from_scratch = {name: recipe for name, recipe in RECIPES.items() if not recipe.weights}
    for prefix, kind in (("deit", "deit"), ("mae-", "mae"), ("augreg-", "vit"), ("imagenet1k-", "vit")):
        kinds = {r.architecture.initialization for name, r in from_scratch.items() if name.startswith(prefix)}
        assert kinds == {kind}
