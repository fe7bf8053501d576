"""Arguments may be NumPy's integers, such as elements of np.arange."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers import AxialBlock, LearnedTokens, PositionEmbedding, PositionEmbedding2D, ResNetBackbone

I = np.int64  # noqa: E741
SHAPE = {"image_size": I(16), "patch_size": (I(8), I(8)), "depth": I(1), "width": I(12), "mlp_dim": I(24)}
VIT = {**SHAPE, "num_heads": np.uint8(3), "num_classes": I(3), "seed": I(1), "representation_size": I(6)}
SMALL = {"stages": (I(1),), "width_factor": I(1), "image_size": I(16), "num_classes": I(3)}
BUILDS = {
    "ViT": lambda: keras_vit.VisionTransformer(**VIT, dropout=0.1),
    "ViT, hybrid": lambda: keras_vit.VisionTransformer(**VIT, resnet_stages=[I(1)]),
    "BiT": lambda: keras_vit.BiT(**SMALL),
    "AxialResNet": lambda: keras_vit.AxialResNet(**SMALL, num_heads=I(8)),
    "PositionEmbedding": lambda: PositionEmbedding((I(2), I(3)), I(1)),
    "PositionEmbedding2D": lambda: PositionEmbedding2D((I(2), I(3)), I(1)),
    "AxialBlock": lambda: AxialBlock((I(2), I(3)), I(1), num_heads=I(3), mlp_dim=I(24), seed=I(1)),
    "LearnedTokens": lambda: LearnedTokens(I(1)),
    "ResNetBackbone": lambda: ResNetBackbone((I(1), I(2)), I(1)),
}


@pytest.mark.parametrize("name", BUILDS)
def test_objects_accept_numpy_integers_and_have_python_integers(name):
    built = BUILDS[name]()
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(built)))
    assert keras.saving.deserialize_keras_object(config).get_config() == built.get_config()
    if isinstance(built, keras.Model):
        assert type(built.num_classes) is int and built.with_head(I(4)).config == built.with_head(4).config


def test_true_is_not_an_integer(toy):
    for name in ("depth", "register_tokens", "num_classes"):
        with pytest.raises(ValueError, match=f"`{name}` .* Received: True"):
            toy(**{name: True})
    with pytest.raises(ValueError, match=r"Received: \(1, True\)"):
        ResNetBackbone((1, True))
