from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from goldens import golden_file, golden_io

import keras_vit
from keras_vit import BiT
from keras_vit.images.pixel_range import PixelRangeWarning
from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised
from keras_vit.recipes.runs.supervised import compile_classifier
from keras_vit.recipes.training.model import adapt_model, build_model, load_model, train_last_blocks

TOY = Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3)
DATA = Data(image_size=16)
RECIPE = Supervised(TOY, data=DATA)


def recipe(image_size=16, **fields):
    return Supervised(TOY, data=Data(image_size=image_size), **fields)


def test_recipe_fields_are_passed_to_the_model():
    fields = {"depth": 2, "width": 12, "mlp_dim": 24, "num_heads": 3, "pooling": "gap", "representation_size": 12}
    fields |= {"position_embedding": "sincos_2d", "dropout": 0.1, "stochastic_depth": 0.2, "patch_dropout": 0.5}
    data = Data(image_size=16, evaluation_resize="shortest", evaluation_crop=0.875, interpolation="bicubic")
    model = build_model(Architecture("Ti/4", **fields), data, Run(precision="mixed_bfloat16"), num_classes=7)
    assert {name: getattr(model.config, name) for name in fields} == fields and model.num_classes == 7
    assert model.dtype_policy.name == "mixed_bfloat16" and model.image_size == (16, 16)
    again = build_model(Architecture("Ti/4", depth=3, width=12, position_placement="every_layer"), data, Run())
    assert len(again.block_positions) == 2  # before the second and the third block
    deit3 = build_model(Architecture("Ti/4", depth=1, width=12, prefix_positions=False, gelu="erf"), data, Run())
    assert deit3.positions.table.shape == (1, 16, 12) and deit3.encoder.blocks[0].mlp.gelu == "erf"
    prepared = model.preprocessing
    assert (prepared.resize, prepared.crop_fraction, prepared.interpolation) == ("shortest", 0.875, "bicubic")


def test_remat_is_set_by_the_run():
    run = Run(remat="block")
    source = build_model(TOY, DATA, run, num_classes=5)
    assert source.encoder.blocks[0].remat == "block"
    assert adapt_model(source, RECIPE, 3).encoder.blocks[0].remat is None
    with pytest.raises(ValueError, match="run.remat='block'"):
        build_model(Architecture("BiT-R50x1"), DATA, run)


def test_variant_sets_the_sizes_and_a_model_without_classes_has_no_hidden_layer():
    model = build_model(Architecture("Ti/16", representation_size=192), Data(image_size=32), Run())
    assert model.config.depth == 12 and model.pre_logits is None and model.head is None


def test_adapt_model():
    source = build_model(TOY, DATA, Run(), num_classes=5)
    for weight in source.weights:
        weight.assign(weight + 0.1)
    # Its variant is not used: the weights determine the model.
    architecture = Architecture(dropout=0.3, patch_dropout=0.4)
    recipe = Supervised(architecture, data=Data(image_size=24), run=Run(precision="mixed_bfloat16"))
    model = adapt_model(source, recipe, 3)
    assert model.grid == (6, 6) and model.num_classes == 3 and model.config.dropout == 0.3
    assert model.patch_dropout.rate == 0.4
    assert model.compute_dtype == "bfloat16" and not np.any(model.head.kernel)
    np.testing.assert_array_equal(model.encoder.blocks[0].mlp.hidden.kernel, source.encoder.blocks[0].mlp.hidden.kernel)
    np.testing.assert_allclose(model.positions.table, source.resized(24).positions.table)


@pytest.fixture(scope="module")
def trained_by_transformers(tmp_path_factory):
    """A .keras file with the weights of a classifier of transformers (10 classes, 64 pixels)."""
    folder = tmp_path_factory.mktemp("trained")
    keras_vit.load(golden_file(folder, "hf_vit"), num_heads=3).save(folder / "trained.keras")
    return str(folder / "trained.keras")


def test_kept_head_and_bicubic_positions_equal_transformers(trained_by_transformers):
    """Logits at 96 pixels by transformers, whose positions are resampled as in facebookresearch/deit (main.py)."""
    io = golden_io("hf_vit_96px")
    model = load_model(trained_by_transformers, recipe(96, keep_head=True, resample="bicubic"), 10)
    np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-4)
    corners = load_model(trained_by_transformers, recipe(96, keep_head=True), 10)
    assert np.abs(corners(io["images"]) - io["logits"]).max() > 1e-3


def test_a_head_is_new_by_default_or_if_its_shape_does_not_fit(trained_by_transformers, toy):
    for num_classes, keep_head in ((10, False), (7, True)):
        model = load_model(trained_by_transformers, recipe(64, keep_head=keep_head), num_classes)
        assert model.num_classes == num_classes and not np.any(model.head.kernel)
    for arguments in ({"distillation": True}, {"representation_size": 6}):
        source = toy(**arguments)
        for weight in source.weights:
            weight.assign(weight + 0.1)
        kept = adapt_model(source, recipe(keep_head=True), 5)
        for one, other in zip(kept.get_weights(), source.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_new_head_has_no_class_names_of_the_old_one(trained_toy):
    source = trained_toy(class_names=list("abcde"), multi_label=True)
    model = adapt_model(source, recipe(keep_head=True), 3)
    assert (model.num_classes, model.config.class_names, model.config.multi_label) == (3, None, False)
    for num_classes in (3, 5):  # a new head, and a kept one
        assert not adapt_model(trained_toy(projection=True), recipe(keep_head=True), num_classes).config.projection


def test_load_model_from_a_bucket(tmp_path):
    source = build_model(TOY, DATA, Run(), num_classes=5)
    source.save(tmp_path / "model.keras")
    tf.io.gfile.makedirs("ram://bucket")
    tf.io.gfile.copy(str(tmp_path / "model.keras"), "ram://bucket/model.keras", overwrite=True)
    for file in (tmp_path / "model.keras", "ram://bucket/model.keras"):
        model = load_model(str(file), recipe(), 2)
        np.testing.assert_array_equal(model.encoder.norm.gamma, source.encoder.norm.gamma)
        assert model.num_classes == 2
    with pytest.raises(OSError, match="ram://bucket/other.keras"):
        load_model("ram://bucket/other.keras", recipe(), 2)


def test_weights_of_another_pixel_range_raise():
    source = build_model(TOY, DATA, Run())
    imagenet = Data(image_size=16, mean=(0.485, 0.456, 0.406))
    with pytest.raises(ValueError, match=r"Use data.mean=\(0.5, 0.5, 0.5\) and data.std=\(0.5, 0.5, 0.5\)"):
        adapt_model(source, Supervised(TOY, data=imagenet), 2)


def test_an_assumed_pixel_range_is_reported_and_yields_to_the_recipe(tmp_path):
    build_model(TOY, DATA, Run(), preprocessing=None).save(tmp_path / "own.keras")
    data = Data(image_size=16, mean=(0.485, 0.456, 0.406))
    with pytest.warns(UserWarning, match=r"own.keras .*mean=\(0.5, .*mean=\(0.485, 0.456, 0.406\)") as warned:
        model = load_model(str(tmp_path / "own.keras"), Supervised(TOY, data=data), 2)
    assert sum(one.category is PixelRangeWarning for one in warned) == 1
    assert model.preprocessing.mean == data.mean and model.preprocessing.origin == "user"
    with pytest.warns(UserWarning, match=r"mean=\(0.5, 0.5, 0.5\) and std=\(0.5"):
        load_model(str(tmp_path / "own.keras"), recipe(), 2)


@pytest.mark.slow
def test_bit():
    model = build_model(Architecture("BiT-R50x1"), Data(image_size=32), Run(), num_classes=3)
    assert isinstance(model, BiT) and model.config.stages == (3, 4, 6, 3)
    again = adapt_model(model, recipe(image_size=64), 2)
    assert again.num_classes == 2 and again.image_size == (64, 64)
    np.testing.assert_array_equal(again.weights[0], model.weights[0])
    with_dropout = replace(recipe(image_size=64), architecture=replace(TOY, dropout=0.1, stochastic_depth=0.1))
    with pytest.raises(ValueError, match="architecture.dropout=0.1, architecture.stochastic_depth=0.1"):
        adapt_model(model, with_dropout, 2)


def test_frozen_models_are_trained():
    model = build_model(TOY, DATA, Run(), num_classes=3)
    for freeze in (model.freeze_encoder, partial(model.freeze_encoder, 1), partial(setattr, model, "trainable", False)):
        freeze()
        assert len(adapt_model(model, recipe(), 2).trainable_variables) == len(model.weights)


def test_blocks_that_there_are_not_and_the_head_of_a_bit(toy):
    bit = BiT(stages=[1], width_factor=0.5, num_classes=2)
    for model, count, there in ((toy(), 3, 2), (bit, 1, 0)):
        with pytest.raises(ValueError, match=f" {there} .*trainable_blocks={count}"):
            train_last_blocks(model, count)
    train_last_blocks(bit, 0)
    assert [variable.name for variable in bit.trainable_variables] == ["kernel", "bias"]


@pytest.mark.slow
def test_frozen_weights_do_not_change_and_others_do(trained_toy, images, without_xla):
    optimizer = Optimizer("adamw", 0.1, weight_decay=0.1, layer_decay=0.7)
    recipe = Supervised(data=Data(image_size=16), optimizer=optimizer, trainable_blocks=1, total_steps=9)
    model, _ = compile_classifier(recipe, 5, 9, start=trained_toy())
    before = {variable.path: np.array(variable) for variable in model.weights}
    for _ in range(2):  # the learning rate of the first step is 0 for the warmup
        model.train_on_batch(images, np.array([0, 1, 2]))
    changed = {variable.path for variable in model.weights if not np.array_equal(variable, before[variable.path])}
    trainable = {variable.path for variable in model.trainable_variables}
    assert changed <= trainable and len(changed) > 0.8 * len(trainable)
