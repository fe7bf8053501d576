"""Which weights are trained: a frozen encoder, and LoRA."""

import copy

import keras
import numpy as np
import pytest

import keras_vit

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def changed_by_fit(model, images, **options):
    """Paths of the weights that a few steps change, without the model's name."""
    before = [np.asarray(weight) for weight in model.weights]
    model.compile(keras.optimizers.Adam(0.1), LOSS, run_eagerly=True)
    model.fit(images, np.array([0, 1, 2]), verbose=0, **options)
    return {w.path.split("/", 1)[1] for w, old in zip(model.weights, before) if not np.array_equal(w, old)}


def test_with_a_frozen_encoder_only_the_head_is_trained(trained_toy, images):
    model = trained_toy(position_placement="every_layer", register_tokens=1, pooling="map", resnet_stages=())
    model.freeze_encoder()
    assert {weight.path.split("/")[-2] for weight in model.trainable_weights} == {"head"}
    assert changed_by_fit(model, images) == {"head/kernel", "head/bias"}
    distilled = trained_toy(distillation=True)
    distilled.freeze_encoder()
    assert {weight.path.split("/")[-2] for weight in distilled.trainable_weights} == {"head", "head_distillation"}


def trained_names(model):
    return {weight.path.split("/", 1)[1] for weight in model.trainable_weights}


def saved(model, folder):
    model.save(folder / "model.keras")
    return keras_vit.load(folder / "model.keras")


@pytest.mark.parametrize("schedule", [(0, 1), (0, None), (1, None, 0), ("all", 1), ("parts", 1), ("parts", None)])
def test_freezing_sets_a_state(trained_toy, images, schedule):
    """The names of what is trained are those of a new model, and a step changes no others."""

    def freeze(model, step):
        if step == "all":
            model.trainable = False
        elif step == "parts":
            freeze_two_parts(model)
        else:
            model.freeze_encoder(step)

    model = trained_toy(position_placement="every_layer")
    for step in schedule:
        freeze(model, step)
    last = ("encoder/block_1/", "encoder/norm/", "positions_1/")
    starts = {0: ("head/",), 1: ("head/", *last), None: ("",)}[schedule[-1]]
    expected = {weight.path.split("/", 1)[1] for weight in model.weights}
    expected = {name for name in expected if name.startswith(starts)}
    assert trained_names(model) == expected
    assert changed_by_fit(model, images) == expected


def freeze_all_but_the_last_block(model):
    model.freeze_encoder(1)
    names = sorted(trained_names(model))
    assert len(names) == 12 + 2 + 2 and {name.split("/")[0] for name in names} == {"encoder", "head"}


def freeze_two_parts(model):
    model.encoder.blocks[0].trainable = model.patch_embedding.projection.kernel.trainable = False


@pytest.mark.parametrize(
    "freeze", [keras_vit.VisionTransformer.freeze_encoder, freeze_all_but_the_last_block, freeze_two_parts]
)
def test_what_is_frozen_belongs_to_a_model(trained_toy, tmp_path, freeze):
    model = trained_toy()
    freeze(model)
    expected = trained_names(model)
    assert 0 < len(expected) < len(model.weights)
    copies = (keras.models.clone_model(model), copy.deepcopy(model), saved(model, tmp_path))
    for made in (*copies, model.with_head(3), model.resized(24), model.with_patch_size(8)):
        assert trained_names(made) == expected
    assert len(keras.models.clone_model(model.as_functional()).trainable_weights) == len(expected)
    assert len(keras_vit.load(tmp_path / "model.keras", trainable=True).trainable_weights) == len(model.weights)


def test_a_frozen_model_inside_another_stays_frozen(toy, images, tmp_path):
    """Sequential and functional models read the weights of the model inside, not its own `trainable`."""
    toy(num_classes=0).save(tmp_path / "toy.keras")
    frozen = toy(num_classes=0)
    frozen.trainable = False
    bit = keras_vit.BiT(stages=(1,), width_factor=0.5, image_size=16, num_classes=0, trainable=False)
    for backbone in (
        frozen,
        toy(num_classes=0, trainable=False),
        keras_vit.load(tmp_path / "toy.keras", trainable=False),
        bit,
    ):
        outer = keras.Sequential([keras.Input((16, 16, 3)), backbone, keras.layers.Dense(3)])
        outer.save(tmp_path / "outer.keras")
        for model in (outer, keras.saving.load_model(tmp_path / "outer.keras"), keras.models.clone_model(outer)):
            assert len(model.trainable_weights) == 2 and not model.layers[0].trainable_weights
    assert not frozen.resized(24).trainable_weights
    assert trained_names(frozen.with_head(3)) == trained_names(bit.with_head(2)) == {"head/kernel", "head/bias"}


def test_other_formats_merge_lora(trained_toy, images, tmp_path):
    model = trained_toy(depth=1, gelu="erf")
    layer = model.encoder.blocks[0].mlp.out
    layer.enable_lora(2, lora_alpha=3)
    layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    keras_vit.weights.save(model, tmp_path / "transformers")
    merged = keras_vit.load(tmp_path / "transformers")
    assert merged.count_params() == trained_toy(depth=1).count_params()
    np.testing.assert_allclose(merged(images), model(images), atol=1e-5)


@pytest.mark.slow
def test_low_rank_adaptation_with_lora_of_keras(trained_toy, images, tmp_path):
    model = trained_toy(register_tokens=1, layer_scale=0.1)
    expected = np.asarray(model(images))
    for weight in model.weights:
        weight.trainable = False
    for block in model.encoder.blocks:
        for layer in (block.attention.qkv, block.attention.out, block.mlp.hidden, block.mlp.out):
            layer.enable_lora(2, lora_alpha=3)
    assert [weight.name for weight in model.trainable_weights] == ["lora_kernel_a", "lora_kernel_b"] * 4 * 2
    np.testing.assert_allclose(model(images), expected, atol=1e-6)
    changed = changed_by_fit(model, images, epochs=3)
    assert changed == trained_names(model)
    adapted = np.asarray(model(images))
    assert np.abs(adapted - expected).max() > 0.01
    headed = model.with_head(7)
    np.testing.assert_array_equal(headed.encode(headed.embed(images)), model.encode(model.embed(images)))
    again = saved(model, tmp_path)
    assert trained_names(again) == changed
    np.testing.assert_array_equal(again(images), adapted)
    model.freeze_encoder(None)
    assert len(model.weights) - len(model.trainable_weights) == 4 * 2  # the kernels under LoRA
