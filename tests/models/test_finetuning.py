"""Which weights are trained: a frozen encoder, and LoRA."""

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


def test_models_made_of_a_frozen_one_are_trainable(toy):
    model, bit = toy(), keras_vit.BiT(stages=(1,), width_factor=0.5, image_size=32, num_classes=3)
    model.trainable = bit.trainable = False
    for made in (model.with_head(3), model.resized(24), model.with_patch_size(8), bit.with_head(2)):
        assert made.trainable_variables and len(made.trainable_variables) == len(made.weights)


@pytest.mark.slow
def test_low_rank_adaptation_with_lora_of_keras(trained_toy, images, tmp_path):
    model = trained_toy(register_tokens=1, layer_scale=0.1)
    expected, count = np.asarray(model(images)), model.count_params()
    for weight in model.weights:
        weight.trainable = False
    for block in model.encoder.blocks:
        for layer in (block.attention.qkv, block.attention.out, block.mlp.hidden, block.mlp.out):
            layer.enable_lora(2)
    assert [weight.name for weight in model.trainable_weights] == ["lora_kernel_a", "lora_kernel_b"] * 4 * 2
    np.testing.assert_allclose(model(images), expected, atol=1e-6)
    changed = changed_by_fit(model, images, epochs=3)
    assert changed == {weight.path.split("/", 1)[1] for weight in model.trainable_weights}
    adapted = np.asarray(model(images))
    assert np.abs(adapted - expected).max() > 0.01
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="LoRA"):
        model.with_head(7)
    merged = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert merged.with_head(7).num_classes == 7 and merged.count_params() == count
    np.testing.assert_allclose(merged(images), adapted, atol=1e-5)
