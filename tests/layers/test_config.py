import inspect

import numpy as np
import pytest

from keras_vit.layers import AxialBlock, BlockConfig, Encoder, EncoderBlock
from keras_vit.layers.config import remat_of_blocks

BUILDS = {
    "EncoderBlock": EncoderBlock,
    "AxialBlock": lambda **options: AxialBlock((2, 2), **options),
    "Encoder": lambda **options: Encoder(2, **options),
}


@pytest.mark.parametrize("name", BUILDS)
def test_fields_and_config_build_the_same_layer(name):
    config = BlockConfig(num_heads=3, mlp_dim=24, dropout=0.1)
    layer = BUILDS[name](config=config, seed=1, name="mine")
    assert layer.config is config and layer.name == "mine"
    same = BUILDS[name](num_heads=3, mlp_dim=24, dropout=0.1, seed=1, name="mine")
    assert same.config == config and same.get_config() == layer.get_config()


@pytest.mark.parametrize("name", BUILDS)
def test_wrong_keywords(name):
    with pytest.raises(ValueError, match="Unrecognized keyword arguments .*droput"):
        BUILDS[name](num_heads=3, mlp_dim=24, droput=0.1)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'mlp_dim'"):
        BUILDS[name](num_heads=3)
    with pytest.raises(TypeError, match="either `config` or its fields. Received: `config` and dropout"):
        BUILDS[name](config=BlockConfig(num_heads=3, mlp_dim=24), dropout=0.1)


@pytest.mark.parametrize("kind", [EncoderBlock, AxialBlock, Encoder])
def test_signatures_show_the_fields(kind):
    shown, fields = inspect.signature(kind).parameters, inspect.signature(BlockConfig).parameters
    assert "config" not in shown and shown["kwargs"] and shown["seed"].default is None
    assert all(shown[name].default == field.default for name, field in fields.items())


def test_fields_are_frozen_python_integers():
    config = BlockConfig(num_heads=np.int64(3), mlp_dim=24)
    assert type(config.num_heads) is int and hash(config) == hash(BlockConfig(num_heads=3, mlp_dim=24))
    with pytest.raises(AttributeError, match="cannot assign to field 'dropout'"):
        config.dropout = 0.1


def test_remat_of_blocks():
    assert remat_of_blocks("mlp", 2) == ["mlp", "mlp"] and remat_of_blocks((None, "block"), 2) == [None, "block"]


@pytest.mark.parametrize("remat", ["all", ["block"], ["block", "none"], 3])
def test_unknown_remat(remat):
    with pytest.raises(ValueError, match="`remat` must be None, 'mlp', 'attention' or 'block', or a list of these"):
        remat_of_blocks(remat, 2)
