"""`fit` and `evaluate` check the loss and, with `predict`, the first batch: compiled steps see no values."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.pixel_range import PixelRangeWarning

PHOTOS = np.random.default_rng(0).uniform(0, 255, (6, 16, 16, 3)).astype("float32")
LABELS = np.zeros((6, 5), "float32")


@pytest.fixture
def model(toy):
    model = toy(depth=1, preprocessing="imagenet")
    model.compile("sgd", "mse", jit_compile=False)
    return model


def batches(images):
    for i in range(0, 6, 3):
        yield images[i : i + 3], LABELS[i : i + 3]


def dataset(images, *labels):
    return tf.data.Dataset.from_tensor_slices((images, *labels) if labels else images).batch(3)


@pytest.mark.slow
def test_pixels_that_are_not_scaled_raise(model):
    calls = (
        lambda images: model.fit(images, LABELS, verbose=0),
        lambda images: model.fit(dataset(images, LABELS), shuffle=False, verbose=0),
        lambda images: model.fit(batches(images), shuffle=False, steps_per_epoch=2, verbose=0),
        lambda images: model.evaluate(dataset(images, LABELS), verbose=0),
        lambda images: model.predict(tf.constant(images), verbose=0),
        lambda images: model.predict(dataset(images), verbose=0),
        model,
    )
    before = [weight.numpy() for weight in model.weights]
    for call in calls:
        with pytest.raises(ValueError, match=r"-2.12 and 2.64, .* Received: floats between 0.* and 255"):
            call(PHOTOS)
    assert all((old == new).all() for old, new in zip(before, model.weights))
    for call in calls:
        call(np.asarray(model.preprocess(PHOTOS)))


def test_losses_of_probabilities_raise(toy):
    """They clip logits; the zero head would have no gradient."""
    model, images = toy(depth=1, preprocessing="imagenet"), np.zeros((2, 16, 16, 3), "float32")
    cases = (
        ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"),
        (keras.losses.binary_crossentropy, "BinaryCrossentropy"),
        (keras.losses.CategoricalFocalCrossentropy(), "CategoricalFocalCrossentropy"),
        (["categorical_crossentropy"], "CategoricalCrossentropy"),
    )
    for loss, name in cases:
        model.compile("sgd", loss, run_eagerly=True)
        for method in (model.fit, model.evaluate):
            with pytest.raises(ValueError, match=rf"keras.losses.{name}\(from_logits=True\)"):
                method(images, np.zeros(2), verbose=0)
    assert model.predict(images, verbose=0).shape == (2, 5)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    assert np.isclose(model.evaluate(images, np.zeros(2), verbose=0), np.log(5))
    subclass = type("Probabilities", (keras_vit.VisionTransformer,), {"__module__": "user"})  # may end in a softmax
    model = subclass.from_config(model.get_config())
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    model.evaluate(images, np.zeros(2), verbose=0)
    features = toy(depth=1, preprocessing="imagenet", num_classes=0)
    features.compile("sgd", "binary_crossentropy", run_eagerly=True)
    features.evaluate(images, np.zeros((2, features.config.width)), verbose=0)


def test_images_of_another_size_raise(model):
    """Once a step is compiled for any size, it would report its operation."""
    small, ready = np.zeros((6, 12, 20, 3), "float32"), np.zeros((6, 16, 16, 3), "float32")
    model.predict(ready, verbose=0)
    for images in (small, small[:, :8], dataset(small)):
        with pytest.raises(ValueError, match=r"\(16, 16\) .* Received: \((12|8), 20\)"):
            model.predict(images, verbose=0)
    model.predict(ready, verbose=0)


@pytest.mark.slow
def test_data_are_what_they_were(model):
    ready = np.asarray(model.preprocess(PHOTOS))
    np.testing.assert_allclose(model.predict(dataset(ready), verbose=0), model(ready), atol=1e-5)
    pairs = dataset(ready, LABELS)
    weighted = pairs.map(lambda x, y: (x, y, tf.ones(3)))
    losses = [model.evaluate(data, steps=2, verbose=0) for data in (pairs, weighted, batches(ready))]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)
    broken = pairs.map(lambda x, y: (tf.debugging.assert_less(x, -9.0, "injected"), (x, y))[1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="injected"):
        model.evaluate(broken, verbose=0)


def test_first_batch_of_an_assumed_range_is_a_warning(toy):
    with pytest.warns(PixelRangeWarning, match=r"\(assumed\). Received: floats between 0.* and 255"):
        toy(depth=1).predict(PHOTOS, verbose=0)


def test_resnets_and_strategies():
    small = {"stages": (1,), "width_factor": 0.5, "image_size": 16, "num_classes": 5, "preprocessing": "half"}
    for kind in (keras_vit.BiT, keras_vit.AxialResNet):
        with pytest.raises(ValueError, match="floats between 0.* and 255"):
            kind(**small).predict(PHOTOS, verbose=0)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras_vit.BiT(**small)
    assert model.predict(dataset(PHOTOS), verbose=0).shape == (6, 5)
