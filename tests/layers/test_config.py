import inspect

import pytest

from keras_vit.layers import AxialBlock, BlockConfig, Encoder, EncoderBlock
from keras_vit.layers.config import remat_of_blocks

BUILDS = {
    EncoderBlock: EncoderBlock,
    AxialBlock: lambda **options: AxialBlock((2, 2), **options),
    Encoder: lambda **options: Encoder(2, **options),
}


@pytest.mark.parametrize("kind", BUILDS)
def test_fields_and_config_build_the_same_layer(kind):
    config, build = BlockConfig(num_heads=3, mlp_dim=24, dropout=0.1), BUILDS[kind]
    layer = build(config=config, seed=1, name="mine")
    assert layer.config is config and layer.name == "mine"
    same = build(num_heads=3, mlp_dim=24, dropout=0.1, seed=1, name="mine")
    assert same.config == config and same.get_config() == layer.get_config()
    shown, fields = inspect.signature(kind).parameters, inspect.signature(BlockConfig).parameters
    assert "config" not in shown and shown["kwargs"] and shown["seed"].default is None
    assert all(shown[name].default == field.default for name, field in fields.items())


@pytest.mark.parametrize("kind", BUILDS)
def test_wrong_keywords(kind):
    config = BlockConfig(num_heads=3, mlp_dim=24)
    for options, error, word in (
        ({"num_heads": 3, "mlp_dim": 24, "droput": 0.1}, ValueError, "droput"),
        ({"num_heads": 3}, TypeError, "mlp_dim"),
        ({"config": config, "dropout": 0.1}, TypeError, "dropout"),
    ):
        with pytest.raises(error, match=word):
            BUILDS[kind](**options)


def test_remat_of_blocks():
    assert remat_of_blocks("mlp", 2) == ["mlp", "mlp"] and remat_of_blocks((None, "block"), 2) == [None, "block"]
    for remat in ("all", ["block"], ["block", "none"], 3):
        with pytest.raises(ValueError, match="`remat`"):
            remat_of_blocks(remat, 2)
