"""Inputs that no model accepts, outputs of symbolic images, and quantized models."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit

X = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
SMALL = {"stages": (1,), "width_factor": 0.5, "image_size": 16}
VIT = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
BUILDS = {
    "ViT": lambda **options: keras_vit.VisionTransformer(**VIT, **options),
    "BiT": lambda **options: keras_vit.BiT(**SMALL, **options),
    "AxialResNet": lambda **options: keras_vit.AxialResNet(**SMALL, **options),
}


@pytest.mark.parametrize("name", BUILDS)
def test_wrong_images_raise_with_a_fix(name):
    model = BUILDS[name](num_classes=5)
    for wrong, message in (
        (np.zeros((2, 16, 16, 3), "uint8"), r"Received: uint8. Use model.preprocess\(images\)"),
        (np.zeros((2, 16, 16, 3), "int64"), "Received: int64"),
        (
            np.zeros((2, 16, 16, 1)),
            r"Expected RGB .*\(2, 16, 16, 1\). Convert gray images by numpy.repeat\(images, 3, axis=-1\)",
        ),
        (
            np.zeros((2, 3, 16, 16)),
            r"Expected RGB .*\(2, 3, 16, 16\).* and \(B, 3, H, W\) by numpy.moveaxis\(images, 1, -1\)",
        ),
        (X[0], r"Received: the shape \(16, 16, 3\). Add a batch axis to one image: images\[None\]"),
        ([X[0], X[1]], r"Received: list. .*stack a list: numpy.stack\(images\)"),
    ):
        with pytest.raises(ValueError, match=message):
            model(wrong)
        with pytest.raises(ValueError, match=message):
            model.features(wrong)
    assert model(X.astype("float64")).shape == (2, 5)


@pytest.mark.parametrize("name", ["ViT", "AxialResNet"])
def test_graphs_of_unknown_size(name):
    model = BUILDS[name](num_classes=0)
    graph = tf.function(model, input_signature=[tf.TensorSpec((None, None, None, 3))])
    np.testing.assert_allclose(graph(X), model(X), atol=1e-4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="6144 values, but the requested shape has 1536"):
        graph(np.zeros((2, 32, 32, 3), "float32"))


@pytest.mark.slow
def test_fit_raises_for_wrong_images():
    model = BUILDS["ViT"](num_classes=5)
    model.compile("sgd", "mse")
    spec = (tf.TensorSpec((None, None, None, 3)), tf.TensorSpec((None, 5)))
    pair = np.zeros((2, 19, 19, 3)), np.zeros((2, 5))
    pairs = tf.data.Dataset.from_generator(lambda: [pair], output_signature=spec)
    with pytest.raises(ValueError, match=r"takes images of \(16, 16\) pixels .* Received: \(19, 19\)"):
        model.fit(pairs, verbose=0, shuffle=False)


@pytest.mark.parametrize("name", BUILDS)
def test_building_twice_changes_nothing(name):
    model = BUILDS[name](num_classes=5)
    before = model.count_params()
    model.build((None, 16, 16, 3))
    assert model.count_params() == before


@pytest.mark.parametrize("classes", [5, 0])
@pytest.mark.parametrize("name", BUILDS)
def test_functional_models_in_mixed_precision(name, classes):
    model = BUILDS[name](num_classes=classes, dtype="mixed_bfloat16")
    inputs = keras.Input((16, 16, 3))
    outputs, real = model(inputs), model(X)
    assert outputs.shape[1:] == real.shape[1:]
    assert outputs.dtype == keras.backend.standardize_dtype(real.dtype) == ("float32" if classes else "bfloat16")
    np.testing.assert_array_equal(keras.Model(inputs, outputs)(X), real)


@pytest.mark.parametrize("name", BUILDS)
def test_wrong_symbolic_images(name):
    model = BUILDS[name](num_classes=5)
    wrong = [
        (keras.Input((16, 16, 3), dtype="uint8"), "Received: uint8. Use model.preprocess"),
        (keras.Input((16, 16, 1)), r"Received: the shape \(None, 16, 16, 1\). Convert gray"),
        (keras.Input((16, 3)), r"Received: the shape \(None, 16, 3\). Add a batch axis"),
    ]
    if name != "BiT":
        wrong += [
            (
                keras.Input((32, 32, 3)),
                r"images of \(16, 16\) pixels .*Received: \(32, 32\). Resize the",
            ),
            (keras.Input((None, 32, 3)), r"images of \(16, 16\) pixels .*Received: \(None, 32\)"),
        ]
    for inputs, message in wrong:
        with pytest.raises(ValueError, match=message):
            model(inputs)


@pytest.mark.slow
@pytest.mark.parametrize("classes,size", [(5, (None, None)), (0, (16, None))])
@pytest.mark.parametrize("name", BUILDS)
def test_functional_models_of_unknown_size(name, classes, size):
    model = BUILDS[name](num_classes=classes)
    inputs = keras.Input((*size, 3))
    outputs, real = model(inputs), model(X)
    assert outputs.shape == (None, *real.shape[1:])
    np.testing.assert_allclose(keras.Model(inputs, outputs).predict(X, verbose=0), real, atol=1e-4)


def test_images_of_unknown_rank():
    model = BUILDS["ViT"](num_classes=5)
    model.compile("sgd", "mse")
    images = tf.data.Dataset.from_tensor_slices((X, np.zeros((2, 5), "float32")))
    lost = images.map(lambda x, y: (tf.py_function(lambda x: x[None], [x], tf.float32), y[None]))
    message = r"unknown rank, .* tf.ensure_shape\(image, \(16, 16, 3\)\) before the images are batched"
    with pytest.raises(ValueError, match=message):
        model.fit(lost, verbose=0, shuffle=False)
    kept = images.map(lambda x, y: (tf.ensure_shape(tf.py_function(lambda x: x, [x], tf.float32), (16, 16, 3)), y))
    assert np.isfinite(model.fit(kept.batch(2), verbose=0, shuffle=False).history["loss"][0])


@pytest.mark.parametrize("classes", [None, -1, 2.5, True])
@pytest.mark.parametrize("name", BUILDS)
def test_wrong_num_classes(name, classes):
    with pytest.raises(ValueError, match=f"`num_classes` must be an integer, 0 for no head. Received: {classes}"):
        BUILDS[name](num_classes=classes)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_int8_eagerly_and_under_xla(trained_toy, images):
    model, full = trained_toy(depth=1, stochastic_depth=0.1), trained_toy(depth=1)
    full.set_weights(model.get_weights())
    model.quantize("int8")  # before any call
    expected, eager = np.asarray(full(images)), np.asarray(model(images))
    assert 1e-4 < np.abs(eager - expected).max() < 0.1 * np.abs(expected).max()
    np.testing.assert_allclose(tf.function(model, jit_compile=True)(images), eager, atol=0.01 * np.abs(eager).max())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_quantized_models_are_saved_as_weights(trained_toy, images, tmp_path):
    model, again = trained_toy(depth=1), trained_toy(depth=1)
    model.quantize("int8")
    for build in (lambda: model.save(tmp_path / "model.keras"), lambda: model.with_head(2), lambda: model.resized(32)):
        with pytest.raises(ValueError, match="was quantized by Keras.*save its weights"):
            build()
    model.save_weights(tmp_path / "model.weights.h5")
    again.quantize("int8")
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(again(images), model(images))
