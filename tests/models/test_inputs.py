"""Inputs that no model accepts, outputs of symbolic images, other heads, and quantized models."""

import gc
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from randomize import randomize

import keras_vit
from keras_vit.keras_internals import all_layers, is_quantized
from keras_vit.layers import ExtractPatches

X = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
SMALL = {"stages": (1,), "width_factor": 0.5, "image_size": 16}
VIT = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
BUILDS = {
    "ViT": lambda **options: keras_vit.VisionTransformer(**VIT, **options),
    "BiT": lambda **options: keras_vit.BiT(**SMALL, **options),
    "AxialResNet": lambda **options: keras_vit.AxialResNet(**SMALL, **options),
}
KINDS = pytest.mark.parametrize("name", BUILDS)
QUANTIZED = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")


@KINDS
def test_a_new_head_of_zeros_replaces_only_the_head(name):
    model = BUILDS[name](num_classes=5)
    count = model.count_params()
    model.build((None, 16, 16, 3))  # again
    assert model.count_params() == count and not np.any(model(X))
    for weight in model.weights:
        weight.assign(weight + 0.1 * np.random.default_rng(7).standard_normal(weight.shape))
    new, headless = model.with_head(9), model.with_head(0)
    assert not np.any(new(X)) and new(X).shape == (2, 9)
    np.testing.assert_array_equal(new.features(X), model.features(X))
    np.testing.assert_array_equal(headless(X), model.features(X))
    assert model.output_shape == (None, 5) and headless.output_shape == headless.compute_output_shape((None, 16, 16, 3))
    assert model.input_shape == (None, *(model.image_size or (None, None)), 3)
    for classes in (None, -1, 2.5, True):
        with pytest.raises(ValueError, match=f"`num_classes` .*Received: {classes}"):
            BUILDS[name](num_classes=classes)


@KINDS
def test_wrong_images_raise_with_a_fix(name):
    model = BUILDS[name](num_classes=5)
    for wrong, message in (
        (np.zeros((2, 16, 16, 3), "uint8"), "Received: uint8. Use model.preprocess"),
        (np.zeros((2, 16, 16, 3), "int64"), "Received: int64"),
        (np.zeros((2, 16, 16, 1)), r"\(2, 16, 16, 1\).* numpy.repeat\(images, 3, axis=-1\)"),
        (np.zeros((2, 3, 16, 16)), r"\(2, 3, 16, 16\).* numpy.moveaxis\(images, 1, -1\)"),
        (X[0], r"\(16, 16, 3\).* images\[None\]"),
        ([X[0], X[1]], r"list. .*numpy.stack\(images\)"),
        (keras.Input((16, 16, 3), dtype="uint8"), "Received: uint8. Use model.preprocess"),
        (keras.Input((16, 16, 1)), r"\(None, 16, 16, 1\). Convert gray"),
        (keras.Input((16, 3)), r"\(None, 16, 3\). Add a batch axis"),
    ):
        for call in (model, model.features):
            with pytest.raises(ValueError, match=message):
                call(wrong)
    assert model(X.astype("float64")).shape == (2, 5)
    np.testing.assert_array_equal(model.predict([X], verbose=0), model.predict(X, verbose=0))


@KINDS
def test_a_functional_model_shares_layers_and_weights(name, tmp_path):
    model = randomize(BUILDS[name](num_classes=5, dropout=0.5) if name == "ViT" else BUILDS[name](num_classes=5))
    functional = model.as_functional()
    np.testing.assert_allclose(functional(X), model(X), atol=1e-6)
    assert functional.inputs[0].shape == model.input_shape and functional.outputs[0].shape == (None, 5)
    assert {id(weight) for weight in functional.weights} == {id(weight) for weight in model.weights}
    assert np.std(functional(X, training=True) - model(X)) > 0 or name != "ViT"  # dropout is active
    features = keras.Model(functional.input, functional.get_layer("head").input)
    np.testing.assert_allclose(features(X), model.features(X), atol=1e-6)
    functional.save(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.saving.load_model(tmp_path / "model.keras")(X), model(X), atol=1e-6)
    names = []
    clone = keras.models.clone_model(functional, clone_function=lambda layer: names.append(layer.name) or layer)
    assert "head" in names and clone.outputs[0].shape == (None, 5)


@pytest.mark.parametrize("name", ["ViT", "AxialResNet"])
def test_images_of_another_size(name):
    model = BUILDS[name](num_classes=0)
    for images, received in (
        (np.zeros((1, 32, 16, 3), "float32"), r"\(32, 16\).*\(32, 16\)\)?"),  # the fix names the size, too
        (keras.Input((32, 32, 3)), r"\(32, 32\)"),
        (keras.Input((None, 32, 3)), r"\(None, 32\)"),
    ):
        with pytest.raises(ValueError, match=rf"\(16, 16\) pixels .*Received: {received}"):
            model(images)
    graph = tf.function(model, input_signature=[tf.TensorSpec((None, None, None, 3))])
    np.testing.assert_allclose(graph(X), model(X), atol=1e-4)
    for size in ((32, 32), (8, 32)):  # the second has as many pixels
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{size[0]},{size[1]},3\].* \[\?,16,16,3\]"):
            graph(np.zeros((2, *size, 3), "float32"))


def test_exported_models_refuse_images_of_another_size(trained_toy, tmp_path):
    """Signatures of a SavedModel are not compared with what it receives: 2 images of twice the size were 8 once."""
    # Without a class token nothing else depends on the number of images.
    model, inputs = trained_toy(pooling="gap", image_size=(16, 8)), keras.Input((16, 8, 3))
    maps = keras.Model(inputs, model.feature_maps(inputs, [1])[0])
    patches = keras.Sequential([inputs, ExtractPatches(4)])
    for outer in (model, keras.Model(inputs, keras.layers.Softmax()(model(inputs))), maps, patches):
        outer.export(tmp_path / "exported", verbose=False)
        exported = tf.saved_model.load(tmp_path / "exported")
        np.testing.assert_allclose(exported.serve(X[:, :, :8]), outer(X[:, :, :8]), atol=1e-5)
        function = exported.signatures["serving_default"]
        (name,) = function.structured_input_signature[1]
        for size in ((32, 16), (8, 16)):
            with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{size[0]},{size[1]},3\].* \[\?,16,8,3\]"):
                function(**{name: tf.zeros((2, *size, 3))})


@pytest.mark.parametrize("policy", ["float16", "bfloat16", "float64", "mixed_bfloat16"])
@KINDS
def test_variables_have_the_dtype_of_the_policy(name, policy):
    """The head, too: its logits are in float32 under a mixed policy."""
    model, dtype = BUILDS[name](num_classes=5, dtype=policy), policy if "mixed" not in policy else "float32"
    assert {variable.dtype for variable in model.weights} == {dtype}
    assert model(keras.Input((16, 16, 3))).dtype == model(X).dtype.name == dtype


def test_fit_raises_for_images_of_unknown_rank():
    model = BUILDS["ViT"](num_classes=5)
    model.compile("sgd", "mse", jit_compile=False)
    images = tf.data.Dataset.from_tensor_slices((X, np.zeros((2, 5), "float32")))
    lost = images.map(lambda x, y: (tf.py_function(lambda x: x[None], [x], tf.float32), y[None]))
    with pytest.raises(ValueError, match=r"unknown rank, .* tf.ensure_shape\(image, \(16, 16, 3\)\)"):
        model.fit(lost, verbose=0, shuffle=False)
    kept = images.map(lambda x, y: (tf.ensure_shape(tf.py_function(lambda x: x, [x], tf.float32), (16, 16, 3)), y))
    assert np.isfinite(model.fit(kept.batch(2), verbose=0, shuffle=False).history["loss"][0])


@pytest.mark.parametrize("classes,size", [(5, (None, None)), (0, (16, None))])
@KINDS
def test_functional_models_of_unknown_size(name, classes, size):
    model, inputs = BUILDS[name](num_classes=classes, dtype="mixed_bfloat16"), keras.Input((*size, 3))
    outputs, real = model(inputs), model(X)
    assert outputs.shape == (None, *real.shape[1:]) and outputs.dtype == real.dtype.name
    np.testing.assert_array_equal(keras.Model(inputs, outputs)(X), real)


@QUANTIZED
def test_int8_eagerly_and_under_xla(trained_toy, images):
    model, full = trained_toy(depth=1, stochastic_depth=0.1), trained_toy(depth=1)
    full.set_weights(model.get_weights())
    model.quantize("int8")  # before any call
    expected, eager = np.asarray(full(images)), np.asarray(model(images))
    assert 1e-4 < np.abs(eager - expected).max() < 0.1 * np.abs(expected).max()
    np.testing.assert_allclose(tf.function(model, jit_compile=True)(images), eager, atol=0.01 * np.abs(eager).max())


CONFIGS = keras.quantizers
BLOCKS = {"block_size": 8} if "block_size" in inspect.signature(CONFIGS.Int4QuantizationConfig).parameters else {}
QUANTIZATIONS = {
    "weight_only": CONFIGS.Int8QuantizationConfig(activation_quantizer=None),
    "blocks": CONFIGS.Int4QuantizationConfig(**BLOCKS),
    "float8": CONFIGS.Float8QuantizationConfig(),
}


@QUANTIZED
@pytest.mark.parametrize("name", ["weight_only", "blocks", pytest.param("float8", marks=pytest.mark.extended)])
def test_quantized_models_are_saved_and_copied(trained_toy, images, tmp_path, monkeypatch, name):
    """Also inside others. A plain layer with the same weights has the same numbers."""
    monkeypatch.setattr(gc, "collect", lambda: 0)  # Keras calls it for each quantized layer
    config, path, size = QUANTIZATIONS[name], tmp_path / "model.keras", keras.Input((16, 16, 3))
    model = trained_toy(depth=1, pooling="map", multi_label=True)
    plain = keras.Sequential([keras.Input((model.config.width,)), keras.layers.Dense(model.num_classes)])
    plain.set_weights(model.head.get_weights())
    for each in (model, plain):
        each.quantize(config=config, filters=None if each is plain else lambda layer: layer.name != "key")
    expected = np.asarray(model(images))
    np.testing.assert_allclose(plain(model.features(images)), expected, rtol=1e-5)
    nested = keras.Sequential([size, keras.Model(size, model(size))])
    for around in (model, model.as_functional(), nested):
        around.save(path)
        for again in (keras.saving.load_model(path), *([keras_vit.load(path)] if around is model else [])):
            np.testing.assert_array_equal(again(images), expected)
            assert again.count_params() == model.count_params()
    wider = model.resized(24)
    assert wider.image_size == (24, 24) and wider.encoder.get_config() == model.encoder.get_config()
    headed = model.with_head(3)
    together = keras.Model(size, keras.layers.Average()([model(size), model.with_head(5)(size)]))  # of two names
    np.testing.assert_allclose(together(images), expected / 2, rtol=1e-6)
    np.testing.assert_array_equal(headed.features(images), model.features(images))
    assert headed.head.quantization_mode is None and len(headed.head.trainable_weights) == 2


@QUANTIZED
def test_older_files_name_the_policies_of_quantized_layers_alone(trained_toy, images, monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda: 0)
    model = trained_toy(depth=1)
    config, layer = model.get_config(), model.encoder.blocks[0].mlp.out
    model.head.quantize("int8")
    layer.quantize(config=QUANTIZATIONS["blocks"])
    policies = {"head": "int8_from_float32", "encoder/block_0/mlp/out": layer.dtype_policy.name}
    again = keras_vit.VisionTransformer.from_config({**config, "quantized": policies})
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(images), model(images))


@pytest.mark.parametrize(
    "arguments", [("gptq",), ("awq", None), (None, CONFIGS.GPTQConfig(dataset=[], tokenizer=None))]
)
def test_calibration_with_text_is_refused_before_a_layer_changes(toy, arguments):
    model = toy(depth=1)
    with pytest.raises(ValueError, match="write_tflite.*int8"):
        model.quantize(*arguments)
    assert not any(map(is_quantized, all_layers(model)))


@pytest.mark.parametrize("kind", [keras.Model, keras_vit.VisionTransformer])
def test_tools_that_replace_fit_after_the_import_are_called(toy, images, monkeypatch, kind):
    """As mlflow.autolog does, which replaces a method of Keras's class; others replace that of the model's."""
    model, fit, calls = toy(depth=1), kind.fit, []
    model.compile("sgd", "mse", run_eagerly=True)
    monkeypatch.setattr(kind, "fit", lambda self, *args, **kwargs: calls.append(self) or fit(self, *args, **kwargs))
    model.fit(images, np.zeros((3, 5)), verbose=0)
    assert calls == [model]
