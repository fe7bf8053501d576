"""Feature maps equal those of timm, and models around a Vision Transformer train, are saved and loaded."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from goldens import golden_file, golden_io
from randomize import randomize

import keras_vit


def test_numbers_of_timm(tmp_path):
    file, io = golden_file(tmp_path, "timm_feature_maps"), golden_io("timm_feature_maps")
    model = keras_vit.load(file, num_heads=3, weights_image_size=(16, 40), preprocessing="half")
    for name, normalized in (("maps", False), ("normalized", True)):
        found = model.feature_maps(io["images"], blocks=(1, 3), normalized=normalized)
        assert [one.shape for one in found] == [(2, 2, 5, 24)] * 2
        np.testing.assert_allclose(found, io[name], atol=1e-4)
    last, first = model.feature_maps(io["images"], blocks=(3, 1))
    np.testing.assert_allclose([first, last], io["maps"], atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "gap", "position_placement": "every_layer", "norm_after_pooling": True},
        {"distillation": True, "register_tokens": 1, "representation_size": None},
        {"pooling": "map", "num_classes": 0},
        {"axial": True, "norm_before_encoder": True},
    ],
)
def test_outputs_from_maps_are_those_of_the_model(changes, trained_toy, images):
    model = trained_toy(depth=3, **changes)
    for block, (maps, prefix) in enumerate(model.feature_maps(images, (1, 2, 3), return_prefix_tokens=True), 1):
        np.testing.assert_allclose(model.outputs_from(maps, prefix, block), model(images), atol=1e-5)
    bit = randomize(keras_vit.BiT(stages=(1,), width_factor=0.5, num_classes=3))
    np.testing.assert_allclose(bit.outputs_from(bit.feature_map(images)), bit(images), atol=1e-6)


def test_gradients_with_respect_to_maps(trained_toy, images):
    """The tape against central differences, along the gradient."""
    model = trained_toy()
    ((maps, prefix),) = model.feature_maps(images, [1], return_prefix_tokens=True)
    with tf.GradientTape() as tape:
        tape.watch(maps)
        score = tf.reduce_sum(model.outputs_from(maps, prefix, 1)[:, 2])
    gradient = tape.gradient(score, maps)
    direction = gradient / tf.norm(gradient)
    after, before = (np.sum(model.outputs_from(maps + h * direction, prefix, 1)[:, 2]) for h in (0.01, -0.01))
    np.testing.assert_allclose((after - before) / 0.02, tf.norm(gradient), rtol=1e-2)


def test_attention_of_some_blocks(trained_toy, images):
    model = trained_toy(depth=3, position_placement="every_layer")
    found, expected = model.attention_maps(images, blocks=[2, 1]), model.attention_maps(images)
    np.testing.assert_allclose(found, np.asarray(expected)[:, [1, 0]], atol=1e-6)
    for blocks in ([0], [4], [], 1):
        with pytest.raises(ValueError, match="`blocks`.* from 1 to 3"):
            model.attention_maps(images, blocks)


def test_layers_without_tensors_are_explained_and_export_needs_no_call(toy, tmp_path, images):
    model = toy(depth=1)
    with pytest.raises(AttributeError, match="as_functional"):
        _ = model.input
    model.export(str(tmp_path / "saved"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.serve(images), model(images), atol=1e-6)


def test_wrong_blocks_raise(toy, images):
    model = toy()
    assert len(model.feature_maps(images)) == len(model.feature_maps(images, range(1, 3))) == 2  # quarters of the depth
    for blocks in ((0,), (3,), (), (1, 2, 9), (1.5,), 1):
        with pytest.raises(ValueError, match="`blocks`.* from 1 to 2"):
            model.feature_maps(images, blocks=blocks)
    with pytest.raises(ValueError, match="after pooling"):
        toy(pooling="gap", norm_after_pooling=True).feature_maps(images, blocks=(1,), normalized=True)


@pytest.mark.slow
def test_a_head_on_maps_trains_and_is_saved(trained_toy, images, tmp_path):
    model = trained_toy(dropout=0.1)
    inputs = keras.Input(model.input_shape[1:])
    maps = keras.layers.Concatenate()(model.feature_maps(inputs, blocks=(1, 2)))
    segmenter = keras.Model(inputs, keras.layers.Conv2D(2, 1)(maps))
    assert segmenter.output_shape == (None, 4, 4, 2)
    expected = keras.ops.concatenate(model.feature_maps(images, blocks=(1, 2)), axis=-1)
    np.testing.assert_allclose(segmenter(images), segmenter.layers[-1](expected), atol=1e-5)
    before = model.encoder.blocks[0].mlp.out.kernel.numpy()
    segmenter.compile("sgd", "mse", run_eagerly=True)
    segmenter.fit(images, np.ones((3, 4, 4, 2)), verbose=0)
    assert np.abs(model.encoder.blocks[0].mlp.out.kernel - before).max() > 0  # these are the model's layers
    segmenter.save(tmp_path / "segmenter.keras")
    again = keras.models.load_model(tmp_path / "segmenter.keras")
    np.testing.assert_allclose(again(images), segmenter(images), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["attention_maps", "features"])
def test_functional_models_of_parts_are_saved(part, trained_toy, images, tmp_path):
    """Keras saves each layer with the dtype policy of the model that it belongs to."""
    toy = trained_toy(position_embedding="relative", register_tokens=2)
    inputs = keras.Input((16, 16, 3))
    model = keras.Model(inputs, getattr(toy, part)(inputs))
    model.save(tmp_path / "part.keras")
    np.testing.assert_allclose(keras.saving.load_model(tmp_path / "part.keras")(images), model(images), atol=1e-6)
