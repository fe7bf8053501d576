"""Feature maps equal those of timm, and models around a Vision Transformer train, are saved and loaded."""

import keras
import numpy as np
import pytest
from goldens import golden_file, golden_io

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


@pytest.mark.parametrize("changes", [{"position_placement": "every_layer"}, {"pooling": "gap", "depth": 3}])
def test_last_normalized_map_is_the_output_of_the_encoder(trained_toy, images, changes):
    model = trained_toy(**changes)
    (found,) = model.feature_maps(images, blocks=[model.config.depth], normalized=True)
    tokens = model.encode(model.embed(images))[:, model.prefix_tokens :]
    np.testing.assert_allclose(found, np.reshape(tokens, (3, 4, 4, 12)), atol=1e-5)


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
