import keras
import numpy as np
import pytest

import keras_vit


def test_groups_partition_the_weights_in_forward_order(toy):
    model = toy(
        depth=3,
        layer_scale=0.1,
        register_tokens=2,
        position_placement="every_layer",
        representation_size=6,
        qk_norm=True,
    )
    groups = keras_vit.layer_groups(model)
    assert len(groups) == 5
    grouped = [variable.path for group in groups for variable in group]
    assert sorted(grouped) == sorted(variable.path for variable in model.trainable_variables)
    assert {path.split("/")[1] for path in (variable.path for variable in groups[0])} == {
        "patch_embedding",
        "class_token",
        "register_tokens",
        "positions",
    }
    assert any("positions_2/" in variable.path for variable in groups[3])
    assert all("block_2/" in variable.path or "positions_2/" in variable.path for variable in groups[3])
    assert {variable.path.split("/")[1] for variable in groups[4]} == {"encoder", "pre_logits", "head"}


def test_frozen_weights_are_omitted(toy):
    model = toy()
    model.freeze_encoder()
    groups = keras_vit.layer_groups(model)
    assert [len(group) for group in groups] == [0, 0, 0, 2]


def test_factors_decrease_towards_the_input(toy):
    model = toy(depth=2)
    factors = keras_vit.layer_wise_factors(model, 0.5)
    by_part = {path.split("/", 1)[1]: factor for path, factor in factors.items()}
    assert by_part["head/kernel"] == by_part["encoder/norm/gamma"] == 1
    assert by_part["encoder/block_1/mlp/out/kernel"] == 0.5
    assert by_part["encoder/block_0/mlp/out/kernel"] == 0.25
    assert by_part["patch_embedding/projection/kernel"] == by_part["positions/table"] == 0.125
    assert set(keras_vit.layer_wise_factors(model, 1.0).values()) == {1.0}


def test_other_models_raise():
    with pytest.raises(ValueError, match="Expected a VisionTransformer. Received: small, a BiT"):
        keras_vit.layer_groups(keras_vit.BiT(stages=(1,), width_factor=0.5, num_classes=0, name="small"))


@pytest.mark.parametrize("decay", [0, 1.5, -1])
def test_decay_out_of_range(toy, decay):
    with pytest.raises(ValueError, match="at most 1. Received"):
        keras_vit.layer_wise_factors(toy(), decay)


def test_no_weight_decay_of_relative_positions():
    model = keras_vit.AxialResNet(image_size=16, stages=(1,), width_factor=0.5, num_classes=2)
    optimizer = keras.optimizers.SGD(1.0, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=keras_vit.NO_WEIGHT_DECAY)
    table, kernel = model.units[0].attention_width.relative, model.units[0].conv1.kernel
    before = [np.asarray(variable) for variable in (table, kernel)]
    optimizer.apply([np.zeros(variable.shape, "float32") for variable in (table, kernel)], [table, kernel])
    np.testing.assert_array_equal(table, before[0])
    np.testing.assert_allclose(kernel, 0.5 * before[1], rtol=1e-6)


def test_attention_pooling_decays_kernels_only(toy):
    model = toy(pooling="map")
    optimizer = keras.optimizers.SGD(1.0, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=keras_vit.NO_WEIGHT_DECAY)
    before = {variable.path: variable.numpy() for variable in model.trainable_variables}
    optimizer.apply([np.zeros(v.shape, "float32") for v in model.trainable_variables], model.trainable_variables)
    for variable in model.trainable_variables:
        factor = 0.5 if variable.path.endswith("/kernel") else 1.0
        np.testing.assert_allclose(variable, factor * before[variable.path], rtol=1e-6)
