"""Arguments may be NumPy's integers, such as elements of np.arange."""

import json
from dataclasses import asdict

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.integers import is_integer, python_integers
from keras_vit.layers import (
    AxialBlock,
    Encoder,
    LearnedTokens,
    PositionEmbedding,
    PositionEmbedding2D,
    ResNetBackbone,
    SinCosPositions,
)

I = np.int64  # noqa: E741
SHAPE = {"image_size": I(16), "patch_size": (I(8), I(8)), "depth": I(2), "width": I(12), "mlp_dim": I(24)}
VIT = {**SHAPE, "num_heads": np.uint8(3), "num_classes": I(3), "seed": I(1), "representation_size": I(6)}
SMALL = {"stages": (I(1),), "width_factor": I(1), "image_size": I(16), "num_classes": I(3)}
BUILDS = {
    "ViT": lambda: keras_vit.VisionTransformer(**VIT, dropout=0.1),
    "ViT, axial": lambda: keras_vit.VisionTransformer(**VIT, axial=True),
    "ViT, hybrid": lambda: keras_vit.VisionTransformer(**VIT, resnet_stages=[I(1)]),
    "BiT": lambda: keras_vit.BiT(**SMALL),
    "AxialResNet": lambda: keras_vit.AxialResNet(**SMALL, num_heads=I(8)),
}


def test_is_integer():
    assert all(is_integer(number) for number in (1, I(1), np.uint8(200)))
    assert not any(is_integer(other) for other in (0, I(0), -1, True, np.True_, 1.0, np.float32(1), "1", None))
    assert is_integer(0, minimum=0) and is_integer(I(0), minimum=0) and not is_integer(False, minimum=0)


def test_python_integers():
    given = {"a": [I(1), {"b": (I(2), True, 0.5, "x", None)}], "c": np.float32(1)}
    found = python_integers(given)
    assert found == given and type(found["c"]) is np.float32 and found["a"][1]["b"][1] is True
    assert type(found["a"][0]) is type(found["a"][1]["b"][0]) is int


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_models_accept_numpy_integers_and_save_python_integers(name, tmp_path):
    model = BUILDS[name]()
    images = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    logits = model(images)
    assert logits.shape == (2, 3) and type(model.num_classes) is int
    assert json.loads(json.dumps(asdict(model.config)))["num_classes"] == 3
    model.save(tmp_path / "x.keras")
    loaded = keras.saving.load_model(tmp_path / "x.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(loaded(images), logits)
    assert model.with_head(I(4)).config == model.with_head(4).config


@pytest.mark.parametrize(
    "layer",
    [
        lambda grid, one: PositionEmbedding(grid, one),
        lambda grid, one: PositionEmbedding2D(grid, one),
        lambda grid, one: SinCosPositions(grid, one),
        lambda grid, one: AxialBlock(grid, one, num_heads=I(3), mlp_dim=I(24)),
        lambda grid, one: Encoder(I(2), num_heads=I(3), mlp_dim=I(24), seed=I(1)),
        lambda grid, one: LearnedTokens(one),
    ],
)
def test_layers_accept_numpy_integers(layer):
    inputs = keras.Input((7, 12))
    model = keras.Model(inputs, layer((I(2), I(3)), I(1))(inputs))
    copy = keras.models.model_from_json(model.to_json())
    assert copy.layers[1].get_config() == model.layers[1].get_config()


def test_stages_of_a_backbone():
    backbone = ResNetBackbone((I(1), I(2)), I(1))
    assert json.dumps(backbone.stages) == "[1, 2]"
    with pytest.raises(ValueError, match=r"Received: \(1, True\)"):
        ResNetBackbone((1, True))


@pytest.mark.parametrize("name", ["depth", "register_tokens", "num_classes"])
def test_true_is_not_an_integer(name, toy):
    with pytest.raises(ValueError, match=f"`{name}` must be an? .*integer.* Received: True"):
        toy(**{name: True})
