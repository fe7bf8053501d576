import keras
import numpy as np
import pytest

import keras_vit


def test_groups_partition_the_weights_in_forward_order(toy):
    options = {"layer_scale": 0.1, "register_tokens": 2, "representation_size": 6, "qk_norm": True}
    model = toy(depth=3, position_placement="every_layer", **options)
    groups = [[variable.path for variable in group] for group in keras_vit.layer_groups(model)]
    assert len(groups) == 5
    assert sorted(path for group in groups for path in group) == sorted(
        variable.path for variable in model.trainable_variables
    )
    stem = {"patch_embedding", "class_token", "register_tokens", "positions"}
    assert {path.split("/")[1] for path in groups[0]} == stem
    assert any("positions_2/" in path for path in groups[3])
    assert all("block_2/" in path or "positions_2/" in path for path in groups[3])
    assert {path.split("/")[1] for path in groups[4]} == {"encoder", "pre_logits", "head"}
    model.freeze_encoder()
    assert [len(group) for group in keras_vit.layer_groups(model)] == [
        0,
        0,
        0,
        0,
        4,
    ]  # of the hidden layer and the head


def test_factors_decrease_towards_the_input(toy):
    model = toy(depth=2)
    factors = keras_vit.layer_wise_factors(model, 0.5)
    by_part = {path.split("/", 1)[1]: factor for path, factor in factors.items()}
    assert by_part["head/kernel"] == by_part["encoder/norm/gamma"] == 1
    assert by_part["encoder/block_1/mlp/out/kernel"] == 0.5
    assert by_part["encoder/block_0/mlp/out/kernel"] == 0.25
    assert by_part["patch_embedding/projection/kernel"] == by_part["positions/table"] == 0.125
    assert set(keras_vit.layer_wise_factors(model, 1.0).values()) == {1.0}
    for decay in (0, 1.5, -1):
        with pytest.raises(ValueError, match=f"Received: {decay}"):
            keras_vit.layer_wise_factors(model, decay)
    with pytest.raises(ValueError, match="Received: small, a BiT"):
        keras_vit.layer_groups(keras_vit.BiT(stages=(1,), width_factor=0.5, num_classes=0, name="small"))


def test_only_kernels_decay(toy):
    resnet = keras_vit.AxialResNet(image_size=16, stages=(1,), width_factor=0.5, num_classes=2)
    for model in (toy(pooling="map", register_tokens=1), resnet):
        optimizer = keras.optimizers.SGD(1.0, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=keras_vit.NO_WEIGHT_DECAY)
        before = {variable.path: variable.numpy() for variable in model.trainable_variables}
        optimizer.apply([np.zeros(v.shape, "float32") for v in model.trainable_variables], model.trainable_variables)
        for variable in model.trainable_variables:
            factor = 0.5 if variable.path.endswith("/kernel") else 1.0
            np.testing.assert_allclose(variable, factor * before[variable.path], rtol=1e-6, err_msg=variable.path)
