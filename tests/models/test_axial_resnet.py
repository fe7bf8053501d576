from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.weights.transfer import named_weights

# Outputs of scenic's axial_resnet.py, unchanged, for the weights of `set_by_formula`.
GOLDEN = Path(__file__).parents[1] / "data" / "scenic_axial_resnet_io.npz"
TOY = {"image_size": (32, 48), "num_classes": 7, "stages": (1, 1), "width_factor": 0.5}
IMAGES = np.random.default_rng(1).uniform(-1, 1, (3, 32, 48, 3)).astype("float32")


def set_by_formula(model):
    """Numbers in [-0.3, 0.3], the same everywhere, and scales around 1."""
    for i, (name, weight) in enumerate(sorted(named_weights(model).items())):
        value = 43758.5453 * np.sin(np.arange(np.prod(weight.shape)) + 0.1 * i) % 2 - 1
        weight.assign(value.reshape(weight.shape) * 0.3 + float(name.endswith("gamma")))


def trained_toy(**changes):
    model = AxialResNet(**{**TOY, **changes})
    set_by_formula(model)
    return model


def test_outputs_equal_scenic():
    model, golden = trained_toy(), np.load(GOLDEN)
    for name, weight in named_weights(model).items():
        if name.endswith("relative"):
            # Scenic adds k_o . r^k where the equation has k_p . r^k: both agree without r^k.
            value = weight.numpy()
            quarter = value.shape[1] // 4
            value[:, quarter : 2 * quarter] = 0
            weight.assign(value)
    np.testing.assert_allclose(model(golden["images"]), golden["outputs"], atol=1e-4)


@pytest.mark.slow
def test_number_of_weights_equals_scenic():
    assert AxialResNet().count_params() == 19_373_640


@pytest.mark.slow
def test_shapes_of_feature_maps():
    model, maps = AxialResNet(**{**TOY, "stages": (1, 2, 1), "image_size": (36, 50)}), []
    shape = (None, 9, 13, 32)
    for unit in model.units:
        shape = unit.compute_output_shape(shape)
        maps.append(shape[1:])
    assert maps == [(9, 13, 128), (5, 7, 256), (5, 7, 256), (3, 4, 512)]
    images = np.zeros((1, 36, 50, 3), "float32")
    assert model.features(images).shape == (1, 512) and model(images).shape == (1, 7)
    assert [unit.attention_height.relative.shape[0] for unit in model.units] == [17, 17, 9, 9]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"num_classes": 0, "num_heads": 4}, {"dtype": "mixed_bfloat16"}])
def test_keras_file_round_trip(tmp_path, changes):
    model = trained_toy(**changes)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(np.asarray(loaded(IMAGES), "float32"), np.asarray(model(IMAGES), "float32"))
    assert model.compute_output_shape(IMAGES.shape) == model(IMAGES).shape


def test_new_model_is_built_with_a_head_of_zeros():
    model = AxialResNet(**TOY)
    assert model.built and not np.any(model(IMAGES))


@pytest.mark.slow
def test_fit_and_predict():
    model = AxialResNet(**TOY)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, 0.9), loss, run_eagerly=True)  # tracing would take most of the time
    losses = model.fit(IMAGES, np.array([0, 1, 2]), epochs=4, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
def test_gradients_reach_every_weight_under_mixed_precision():
    model = trained_toy(dtype="mixed_bfloat16")
    with tf.GradientTape() as tape:
        logits = model(IMAGES, training=True)
        loss = tf.reduce_sum(logits**2)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert keras.backend.standardize_dtype(model.features(IMAGES).dtype) == "bfloat16"
    np.testing.assert_allclose(logits, trained_toy()(IMAGES), atol=0.3)
    for weight, gradient in zip(model.trainable_weights, tape.gradient(loss, model.trainable_weights)):
        assert weight.dtype == "float32"
        assert gradient is not None and np.isfinite(gradient).all() and np.any(gradient), weight.path


@pytest.mark.slow
def test_one_trace_for_all_batch_sizes():
    model, traces = trained_toy(), []

    @tf.function(input_signature=[tf.TensorSpec((None, 32, 48, 3))])
    def run(images):
        traces.append(1)
        logits = model(images)
        assert logits.shape.as_list() == [None, 7]
        return logits

    for batch in (1, 3):
        np.testing.assert_allclose(run(IMAGES[:batch]), model(IMAGES[:batch]), atol=1e-4)
    assert len(traces) == 1


@pytest.mark.slow
def test_with_head_replaces_only_the_head():
    model = trained_toy()
    new = model.with_head(9)
    assert not np.any(new(IMAGES)) and new(IMAGES).shape == (3, 9)
    np.testing.assert_array_equal(new.features(IMAGES), model.features(IMAGES))
    np.testing.assert_array_equal(model.with_head(0)(IMAGES), model.features(IMAGES))


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"width_factor": 0.25}, "16 channels, num_heads=8. Use a multiple of 32"),
        ({"width_factor": 0.51}, "32.64 channels"),
        ({"num_heads": 5}, "32 channels, num_heads=5. Use a multiple of 160"),
        ({"stages": ()}, r"such as \(3, 4, 6, 3\). Received: \(\)"),
        ({"stages": (1, 0)}, r"Received: \(1, 0\)"),
        ({"image_size": 0}, "positive integer of pixels"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        AxialResNet(**{**TOY, **changes})


def test_images_of_another_size():
    with pytest.raises(ValueError, match=r"\(32, 48\) pixels.*Received: \(32, 32\).*image_size=\(32, 32\)"):
        AxialResNet(**TOY)(np.zeros((1, 32, 32, 3), "float32"))
