"""The configuration of every model: its fields are the keyword arguments, and travel with the model."""

import copy
import inspect
from dataclasses import FrozenInstanceError, asdict

import numpy as np
import pytest

import keras_vit
from keras_vit import AxialResNetConfig, BiTConfig, Preprocessing, ViTConfig

SIZE = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
SMALL = {"image_size": 16, "stages": [1], "width_factor": 0.5, "num_classes": 2}
MODELS = {
    "ViT": (keras_vit.VisionTransformer, ViTConfig, SIZE),
    "BiT": (keras_vit.BiT, BiTConfig, SMALL),
    "AxialResNet": (keras_vit.AxialResNet, AxialResNetConfig, SMALL),
}


def config(**changes):
    return ViTConfig(**{**SIZE, **changes})


@pytest.mark.parametrize("name", MODELS)
def test_fields_and_config_build_the_same_model(name):
    model, kind, options = MODELS[name]
    built = model(**options, name="mine")
    assert built.config == kind(**options) and model(config=kind(**options), name="mine").config == built.config
    assert built.get_config().items() >= asdict(built.config).items()
    assert type(built).from_config(built.get_config()).config == built.config == copy.deepcopy(built).config
    shown, fields = inspect.signature(model).parameters, inspect.signature(kind).parameters
    assert list(shown) == [*fields, "kwargs"]
    assert [shown[field].default for field in fields] == [field.default for field in fields.values()]
    with pytest.raises(ValueError, match="droput"):
        model(**options, droput=0.1)
    with pytest.raises(FrozenInstanceError):
        kind(**options).num_classes = 3


def test_values_are_normalized():
    found = config(image_size=np.int64(16), patch_size=[4, 2], resnet_stages=[], remat=["mlp"], num_classes=np.int8(3))
    assert (found.image_size, found.patch_size, found.grid) == ((16, 16), (4, 2), (4, 8))
    assert (found.resnet_stages, found.remat, found.preprocessing) == ((), ("mlp",), Preprocessing((16, 16)))
    assert type(found.image_size[0]) is type(found.num_classes) is int and hash(found)
    assert config(stochastic_depth=np.array([0.25])).stochastic_depth == (0.25,)
    given = config(preprocessing={"image_size": 8, "resize": "shortest"})
    assert given.preprocessing == Preprocessing(16, resize="shortest")


def test_fields_that_depend_on_others():
    class_token = {pooling: config(pooling=pooling).class_token for pooling in ("token", "none", "gap", "map")}
    assert class_token == {"token": True, "none": True, "gap": False, "map": False}
    assert config(distillation=True, register_tokens=3).prefix_tokens == 5
    block = config(dropout=0.1, layer_scale=0.2, position_embedding="relative").block
    assert (block.num_heads, block.mlp_dim, block.dropout, block.layer_scale) == (3, 24, 0.1, 0.2)
    assert block.relative_positions and not config().block.relative_positions


@pytest.mark.parametrize(
    "field,value",
    [
        ("dropout", 1.0),
        ("patch_dropout", "0.5"),
        ("patch_dropout", -0.5),
        ("attention_dropout", "0.1"),
        ("epsilon", -1),
        ("layer_scale", True),
    ],
)
def test_numbers_out_of_range(field, value):
    with pytest.raises(ValueError, match=f"`{field}` .*Received: {value!r}"):
        config(**{field: value})
