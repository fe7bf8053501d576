"""The checks that Keras and KerasHub run on their models, on one toy of each kind here."""

import functools
import json
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from randomize import randomize

import keras_vit

IMAGES = np.random.default_rng(1).uniform(-1, 1, (3, 16, 8, 3)).astype("float32")
VIT = {"patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3, "image_size": (16, 8), "seed": 3}
RESNET = {"stages": (1,), "width_factor": 0.5, "image_size": (16, 8)}
MODELS = {
    "ViT": (keras_vit.VisionTransformer, {**VIT, "pooling": "map", "representation_size": 6, "dropout": 0.1}),
    "DeiT": (keras_vit.VisionTransformer, {**VIT, "distillation": True, "gelu": "erf", "stochastic_depth": [0.2]}),
    "hybrid": (keras_vit.VisionTransformer, {**VIT, "resnet_stages": (1,), "layer_scale": 0.1, "qk_norm": True}),
    "BiT": (keras_vit.BiT, {**RESNET, "form": "paper", "pool_padding": "edge", "image_size": None}),
    "axial": (keras_vit.AxialResNet, {**RESNET, "num_heads": 4}),
}
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", MODELS)]


@functools.cache
def build(name, num_classes=5, dtype="float32"):
    """A model with random weights everywhere, the same in every dtype."""
    kind, options = MODELS[name]
    keras.utils.set_random_seed(0)
    return randomize(kind(**options, num_classes=num_classes, dtype=dtype, name="mine"))


def assert_same(copy, model):
    assert type(copy) is type(model) and copy.get_config() == model.get_config()
    np.testing.assert_array_equal(np.asarray(copy(IMAGES), "float32"), np.asarray(model(IMAGES), "float32"))


def test_copies(name):
    model = build(name)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    for copy in (keras.saving.deserialize_keras_object(config), keras.models.clone_model(model)):
        assert [weight.path for weight in copy.weights] == [weight.path for weight in model.weights]
        copy.set_weights(model.get_weights())
        assert_same(copy, model)
    assert_same(pickle.loads(pickle.dumps(model)), model)


@pytest.mark.parametrize("num_classes,dtype", [(5, "float32"), (0, "mixed_bfloat16")])
def test_saved_files(name, num_classes, dtype, tmp_path):
    model = build(name, num_classes, dtype)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.dtype_policy == model.dtype_policy
    assert_same(loaded, model)
    model.save_weights(tmp_path / "model.weights.h5")
    other = type(model).from_config(model.get_config())
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same(other, model)


def test_mixed_precision_and_gradients(name):
    policy = "mixed_float16"  # mixed_bfloat16: test_saved_files
    model, features, expected = build(name, dtype=policy), build(name, 0, policy), np.asarray(build(name)(IMAGES))
    logits = model(IMAGES)
    assert logits.dtype == "float32" and features(IMAGES).dtype == features.compute_dtype == policy[len("mixed_") :]
    assert 1e-6 < np.sqrt(np.mean((logits - expected) ** 2)) < 0.1 * max(expected.std(), 1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(IMAGES, training=True) ** 2)
    for weight, gradient in zip(model.trainable_weights, tape.gradient(loss, model.trainable_weights), strict=True):
        assert weight.dtype == "float32" and np.isfinite(gradient).all() and np.any(gradient), weight.path


def test_one_trace_and_training(name):
    model, traces = type(build(name)).from_config(build(name).get_config()), []

    @tf.function(input_signature=[tf.TensorSpec((None, 16, 8, 3))])
    def run(images):
        traces.append(model(images).shape)
        return model(images)

    model.set_weights(build(name).get_weights())
    for batch in (1, 3):
        np.testing.assert_allclose(run(IMAGES[:batch]), model(IMAGES[:batch]), atol=1e-4)
    assert traces == [model.compute_output_shape((None, 16, 8, 3))]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, run_eagerly=True)  # tracing takes longer
    losses = model.fit(IMAGES, np.array([0, 1, 2]), epochs=5, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < 0.9 * losses[0]
