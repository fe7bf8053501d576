import keras
import numpy as np
import pytest

import keras_vit


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "gap"},
        {"pooling": "map", "representation_size": 6},
        {"pooling": "none", "class_token": False},
        {"pooling": "gap", "class_token": True, "num_classes": 0},
        {
            "image_size": (16, 8),
            "patch_size": (4, 2),
            "gelu": "erf",
            "dropout": 0.1,
            "stochastic_depth": [0.1, 0.2],
            "seed": 3,
        },
    ],
)
def test_keras_file_round_trip(trained_toy, images, tmp_path, changes):
    model = trained_toy(**changes)
    x = images[:, :, : model.image_size[1]]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(loaded(x), model(x))
    assert model.compute_output_shape(x.shape) == model(x).shape


def test_weights_file_round_trip(trained_toy, toy, images, tmp_path):
    model, other = trained_toy(), toy()
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(images), model(images))


def test_forward_pass_equals_the_paper(trained_toy, images):
    model = trained_toy(representation_size=6)
    patches = model.patch_embedding(images)
    tokens = np.concatenate([np.repeat(model.class_token.token.numpy(), 3, axis=0), patches], axis=1)
    tokens = tokens + np.asarray(model.positions.table)
    y = np.asarray(model.encoder(tokens))[:, 0]
    (kernel, bias), (head, head_bias) = model.pre_logits.get_weights(), model.head.get_weights()
    features = np.tanh(y @ kernel + bias)
    np.testing.assert_allclose(model.features(images), features, atol=1e-5)
    np.testing.assert_allclose(model(images), features @ head + head_bias, atol=1e-5)


def test_new_model_has_a_head_of_zeros(toy, images):
    assert not np.any(toy()(images))


@pytest.mark.slow
def test_fit_and_predict(toy, images):
    model = toy(dropout=0.1, stochastic_depth=0.1)
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(images, np.array([0, 1, 2]), epochs=30, verbose=0).history["loss"]
    assert losses[-1] < 0.2 * losses[0]
    np.testing.assert_array_equal(model.predict(images, verbose=0).argmax(-1), [0, 1, 2])


def test_mixed_precision_keeps_logits_and_variables_float32(trained_toy, images):
    model = trained_toy(dtype="mixed_bfloat16")
    logits = model(images)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert keras.backend.standardize_dtype(model.features(images).dtype) == "bfloat16"
    full = trained_toy()
    full.set_weights(model.get_weights())
    np.testing.assert_allclose(logits, full(images), atol=0.1)
    assert np.abs(np.asarray(logits) - np.asarray(full(images))).max() > 1e-5


def test_attention_maps_do_not_change_the_output(trained_toy, images):
    model = trained_toy()
    before = np.asarray(model(images))
    maps = np.asarray(model.attention_maps(images))
    assert maps.shape == (3, 2, 3, 17, 17)
    np.testing.assert_allclose(maps.sum(axis=-1), 1, atol=1e-5)
    np.testing.assert_array_equal(model(images), before)


def test_with_head_replaces_only_the_head(trained_toy, images):
    model = trained_toy(representation_size=6)
    new = model.with_head(9)
    assert not np.any(new(images)) and new(images).shape == (3, 9)
    features = model.pool(model.encode(model.embed(images)))
    assert features.shape == (3, 6) and model.with_head(0)(images).shape == (3, 12)
    np.testing.assert_allclose(new.features(images), np.asarray(model.encode(model.embed(images)))[:, 0], atol=1e-6)


def test_resized_and_back(trained_toy, images):
    model = trained_toy()
    large = model.resized((24, 16))
    assert large.grid == (6, 4)
    assert large(np.zeros((1, 24, 16, 3), "float32")).shape == (1, 5)
    expected = keras_vit.layers.resample_grid(model.positions.table, (4, 4), (6, 4), prefix_tokens=1)
    np.testing.assert_array_equal(large.positions.table, expected)
    same = model.resized(16)
    np.testing.assert_array_equal(same(images), model(images))
    bicubic = model.resized((24, 16), resample="bicubic")
    assert not np.allclose(bicubic.positions.table, expected)


def test_images_of_another_size(toy):
    with pytest.raises(ValueError, match=r"Received: \(32, 16\).*model.resized\(\(32, 16\)\)"):
        toy()(np.zeros((1, 32, 16, 3), "float32"))


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"image_size": 18}, r"\(18, 18\).*image_size=16 or image_size=20"),
        ({"image_size": 0}, "positive integer of pixels.*Received: 0"),
        ({"pooling": "cls"}, "token, gap, token_and_gap, map, none. Received: 'cls'"),
        ({"num_heads": 5}, "num_heads=5, width=12"),
        ({"pooling": "map", "num_heads": 5}, "num_heads=5, width=12"),
        ({"class_token": False}, "pooling='token'"),
        ({"gelu": "exact"}, "Received: 'exact'"),
    ],
)
def test_bad_arguments(toy, changes, message):
    with pytest.raises(ValueError, match=message):
        toy(**changes)
