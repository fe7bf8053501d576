"""Which weights are trained: a frozen encoder, and LoRA."""

import keras
import numpy as np
import pytest

import keras_vit


def test_with_a_frozen_encoder_only_the_head_is_trained(trained_toy, images):
    changes = {"position_placement": "every_layer", "register_tokens": 1, "pooling": "map", "resnet_stages": ()}
    model = trained_toy(**changes)
    model.freeze_encoder()
    assert {weight.path.split("/")[-2] for weight in model.trainable_weights} == {"head"}
    before = [np.asarray(weight) for weight in model.weights]
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    model.fit(images, np.array([0, 1, 2]), verbose=0)
    changed = {w.path.split("/", 1)[1] for w, old in zip(model.weights, before) if not np.array_equal(w, old)}
    assert changed == {"head/kernel", "head/bias"}

    distilled = trained_toy(distillation=True)
    distilled.freeze_encoder()
    assert {weight.path.split("/")[-2] for weight in distilled.trainable_weights} == {"head", "head_distillation"}


def test_models_made_of_a_frozen_one_are_trainable(trained_toy):
    model = trained_toy()
    model.trainable = False
    for made in (model.with_head(3), model.resized(24), model.with_patch_size(8)):
        assert len(made.trainable_variables) == len(made.weights)
    bit = keras_vit.BiT(stages=(1,), width_factor=1, image_size=32, num_classes=3)
    bit.trainable = False
    assert len(bit.with_head(2).trainable_variables) == len(bit.weights)


@pytest.mark.slow
def test_low_rank_adaptation_with_lora_of_keras(trained_toy, images, tmp_path):
    model = trained_toy(register_tokens=1, layer_scale=0.1)
    expected = np.asarray(model(images))
    for weight in model.weights:
        weight.trainable = False
    for block in model.encoder.blocks:
        for layer in (block.attention.qkv, block.attention.out, block.mlp.hidden, block.mlp.out):
            layer.enable_lora(2)
    assert [weight.name for weight in model.trainable_weights] == ["lora_kernel_a", "lora_kernel_b"] * 4 * 2
    np.testing.assert_allclose(model(images), expected, atol=1e-6)

    before = {weight.path: np.asarray(weight) for weight in model.weights}
    model.compile(
        keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True
    )
    model.fit(images, np.array([0, 1, 2]), epochs=3, verbose=0)
    changed = {weight.path for weight in model.weights if not np.array_equal(weight, before[weight.path])}
    assert changed == {weight.path for weight in model.trainable_weights}
    adapted = np.asarray(model(images))
    assert np.abs(adapted - expected).max() > 0.01
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="To merge those of LoRA, save"):
        model.with_head(7)
    merged = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert merged.with_head(7).num_classes == 7
    assert merged.count_params() == trained_toy(register_tokens=1, layer_scale=0.1).count_params()
    np.testing.assert_allclose(merged(images), adapted, atol=1e-5)
