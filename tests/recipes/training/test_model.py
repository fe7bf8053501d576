import numpy as np
import pytest
import tensorflow as tf

from keras_vit import BiT
from keras_vit.recipes.recipe import Architecture, Data, Run
from keras_vit.recipes.training.model import adapt_model, build_model, check_image_size, load_model

TOY = Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3)
DATA = Data(image_size=16)


def test_recipe_fields_are_passed_to_the_model():
    architecture = Architecture(
        "Ti/4",
        depth=2,
        width=12,
        mlp_dim=24,
        num_heads=3,
        pooling="gap",
        representation_size=12,
        position_embedding="sincos_2d",
        dropout=0.1,
        stochastic_depth=0.2,
    )
    data = Data(image_size=16, evaluation_resize="shortest", evaluation_crop=0.875, interpolation="bicubic")
    model = build_model(architecture, data, Run(precision="mixed_bfloat16"), num_classes=7)
    expected = {"depth": 2, "width": 12, "mlp_dim": 24, "num_heads": 3, "pooling": "gap", "representation_size": 12}
    expected |= {"position_embedding": "sincos_2d", "dropout": 0.1, "stochastic_depth": 0.2, "num_classes": 7}
    assert {name: getattr(model.config, name) for name in expected} == expected
    assert model.dtype_policy.name == "mixed_bfloat16" and model.image_size == (16, 16)
    prepared = model.preprocessing
    assert (prepared.resize, prepared.crop_fraction, prepared.interpolation) == ("shortest", 0.875, "bicubic")


def test_remat_is_set_by_the_run():
    run = Run(remat="block")
    source = build_model(TOY, DATA, run, num_classes=5)
    assert source.encoder.blocks[0].remat == "block"
    assert adapt_model(source, TOY, DATA, Run(), 3).encoder.blocks[0].remat is None
    with pytest.raises(ValueError, match="no Transformer blocks to recompute. Received: run.remat='block'"):
        build_model(Architecture("BiT-R50x1"), DATA, run)


def test_variant_sets_the_sizes_and_a_model_without_classes_has_no_hidden_layer():
    model = build_model(Architecture("Ti/16", representation_size=192), Data(image_size=32), Run())
    assert model.config.depth == 12 and model.pre_logits is None and model.head is None


def test_adapt_model():
    source = build_model(TOY, DATA, Run(), num_classes=5)
    for weight in source.weights:
        weight.assign(weight + 0.1)
    architecture = Architecture(dropout=0.3)  # its variant is not used: the weights determine the model
    model = adapt_model(source, architecture, Data(image_size=24), Run(precision="mixed_bfloat16"), 3)
    assert model.grid == (6, 6) and model.num_classes == 3 and model.config.dropout == 0.3
    assert model.compute_dtype == "bfloat16" and not np.any(model.head.kernel)
    np.testing.assert_array_equal(model.encoder.blocks[0].mlp.hidden.kernel, source.encoder.blocks[0].mlp.hidden.kernel)
    np.testing.assert_allclose(model.positions.table, source.resized(24).positions.table)


def test_load_model_from_a_file(tmp_path):
    source = build_model(TOY, DATA, Run(), num_classes=5)
    source.save(tmp_path / "model.keras")
    model = load_model(str(tmp_path / "model.keras"), TOY, DATA, Run(), 2)
    np.testing.assert_array_equal(model.encoder.norm.gamma, source.encoder.norm.gamma)
    assert model.num_classes == 2


def test_load_model_from_a_bucket(tmp_path):
    source = build_model(TOY, DATA, Run(), num_classes=5)
    source.save(tmp_path / "model.keras")
    tf.io.gfile.makedirs("ram://bucket")
    tf.io.gfile.copy(str(tmp_path / "model.keras"), "ram://bucket/model.keras", overwrite=True)
    model = load_model("ram://bucket/model.keras", TOY, DATA, Run(), 2)
    np.testing.assert_array_equal(model.encoder.norm.gamma, source.encoder.norm.gamma)
    with pytest.raises(OSError, match="ram://bucket/other.keras cannot be read"):
        load_model("ram://bucket/other.keras", TOY, DATA, Run(), 2)


def test_weights_of_another_pixel_range_raise():
    source = build_model(TOY, DATA, Run())
    with pytest.raises(ValueError, match=r"trained on pixels scaled by mean=\(0.5, 0.5, 0.5\)"):
        adapt_model(source, TOY, Data(image_size=16, mean=(0.485, 0.456, 0.406)), Run(), 2)


@pytest.mark.slow
def test_bit():
    model = build_model(Architecture("BiT-R50x1"), Data(image_size=32), Run(), num_classes=3)
    assert isinstance(model, BiT) and model.config.stages == (3, 4, 6, 3)
    again = adapt_model(model, Architecture(), Data(image_size=64), Run(), 2)
    assert again.num_classes == 2 and again.image_size == (64, 64)
    np.testing.assert_array_equal(again.weights[0], model.weights[0])


@pytest.mark.parametrize(
    "architecture,message",
    [
        (Architecture("BiT-R51x1"), "Expected one of BiT-R50x1"),
        (
            Architecture("BiT-R50x1", dropout=0.1, pooling="gap"),
            "does not support architecture.pooling, architecture.dropout",
        ),
        (Architecture("Q/16"), "Expected a variant such as 'B/16'"),
    ],
)
def test_invalid_architectures(architecture, message):
    with pytest.raises(ValueError, match=message):
        build_model(architecture, DATA, Run())


def test_check_image_size():
    check_image_size(Architecture("B/16"), Data(image_size=224))
    check_image_size(Architecture("BiT-R50x1"), Data(image_size=225))
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        check_image_size(Architecture("H/14"), Data(image_size=225))
