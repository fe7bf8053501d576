"""Sequential and functional models around one of ours: classified, exported and inspected as ours are."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import inspect
from keras_vit.export import check_parity, write_onnx, write_saved_model, write_tflite
from keras_vit.export.exported.opening import onnx_session, open_exported
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.models.outer_model import OuterModel


def pixels(size, count=2):
    return np.random.default_rng(0).integers(0, 256, (count, *size, 3)).astype("float32")


def with_softmax(vit):
    """Prepared images, augmented in training, to probabilities of the classes of `vit`."""
    return keras.Sequential([keras.Input((16, 16, 3)), keras.layers.RandomFlip(), vit, keras.layers.Softmax()])


def with_own_head(vit, size=(20, 30)):
    """Pixels of another size to logits of other classes; inside a second model."""
    inputs, images = keras.Input((*size, 3)), keras.Input((16, 16, 3))
    inner = keras.Model(images, keras.layers.Dense(3, bias_initializer="normal")(vit(images)))
    return keras.Model(inputs, inner(vit.preprocess(inputs)))


@pytest.mark.extended
@pytest.mark.parametrize("build", [with_softmax, with_own_head])
def test_exports_return_what_the_model_predicts(build, trained_toy, tmp_path):
    vit = trained_toy(depth=1, class_names=["a", "b", "c", "d", "e"])
    model = build(vit)
    images = pixels(model.input_shape[1:3])
    inputs = images if build is with_own_head else np.asarray(vit.preprocess(images))
    outputs = model.predict(inputs, verbose=0)
    expected = np.asarray(tf.nn.softmax(outputs)) if build is with_own_head else outputs
    file = write_tflite(model, tmp_path, ["float32"])["float32"]
    np.testing.assert_allclose(run_tflite(file, images)[0], expected, atol=1e-5)
    folder = write_saved_model(model, tmp_path / "saved")
    served = tf.saved_model.load(str(folder)).signatures["serve_uint8"](images=tf.constant(images.astype("uint8")))
    np.testing.assert_allclose(served["probabilities"], expected, atol=1e-5)
    assert ("top_class_names" in served) == (build is with_softmax)  # the classes of another head have no names
    session = onnx_session(write_onnx(model, tmp_path / "model.onnx"))
    name = "logits" if build is with_own_head else "probabilities"
    np.testing.assert_allclose(session.run([name], {"images": inputs})[0], outputs, atol=1e-5)
    (row,) = check_parity(model, {"tflite": file}, images, expected.argmax(-1))
    assert row.top1 == row.agreement == 1 and row.max_difference < 1e-5
    with pytest.raises(ValueError, match=rf"dynamic-int8.* Export {vit.name}"):
        write_tflite(model, tmp_path, ["dynamic-int8"])


def activated(layer):
    return lambda logits: layer(keras.layers.Softmax()(logits))


@pytest.mark.parametrize(
    "follow",
    [
        activated(keras.layers.Activation("linear", dtype="float32")),
        activated(keras.layers.Flatten()),
        activated(lambda outputs: keras.ops.cast(outputs, "float32") * 1.0),
        lambda logits: logits[:, ::-1],
        lambda logits: logits[:, 2:4],
        keras.layers.Dense(5, kernel_initializer="zeros"),
        lambda logits: keras.ops.sigmoid(keras.layers.Dense(4)(logits)),
    ],
)
def test_probabilities_and_names_whatever_follows(follow, trained_toy):
    vit, inputs = trained_toy(depth=1, class_names=["a", "b", "c", "d", "e"]), keras.Input((16, 16, 3))
    model = keras.Model(inputs, follow(vit(inputs)))
    images = pixels((16, 16))
    outputs = np.asarray(model(vit.preprocess(images)))
    is_fraction = (outputs.sum(-1) > 0.99).all() and (outputs <= 1).all() and (outputs > 0).all()
    expected = outputs if is_fraction else np.asarray(tf.nn.softmax(outputs))
    found = [dict(row) for row in keras_vit.classify(model, images, outputs.shape[-1])]
    inner = np.asarray(tf.nn.softmax(vit(vit.preprocess(images))))
    keeps = inner.shape == expected.shape and np.allclose(expected, inner, atol=1e-5)
    names = vit.class_names if keeps else [f"class {i}" for i in range(outputs.shape[-1])]
    for row, probabilities in zip(found, expected):
        np.testing.assert_allclose([row[name] for name in names], probabilities, atol=1e-5)


def test_gray_pixels_are_scaled_once(trained_toy):
    vit = trained_toy(depth=1, channels=1)
    model = keras.Sequential([keras.Input((16, 16, 1)), keras.layers.Rescaling(1 / 127.5, -1), vit])
    images = pixels((16, 16))[..., :1]
    for row, expected in zip(keras_vit.classify(model, images), vit.classify(images), strict=True):
        assert dict(row) == pytest.approx(dict(expected), abs=1e-5)


@pytest.mark.extended
def test_exported_probabilities_are_classified(trained_toy, tmp_path):
    """Keras's exact GELU, and a softmax of a head of its own."""
    vit, inputs = trained_toy(depth=1), keras.Input((16, 16, 3))
    hidden = keras.layers.Dense(8, activation="gelu")(vit(vit.preprocess(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(hidden))
    images = pixels((16, 16))
    expected = model.predict(images, verbose=0)
    files = [write_onnx(model, tmp_path / "model.onnx"), write_saved_model(model, tmp_path / "saved")]
    for classifier in map(open_exported, files):
        assert classifier.activation == "softmax" and classifier.preprocessing.origin == "user"
        np.testing.assert_allclose(classifier.probabilities(images), expected, atol=1e-5)


@pytest.mark.parametrize("size", [(16, 16), (20, 30), (None, None)])
def test_classes_are_those_of_the_whole(size, trained_toy):
    vit = trained_toy(depth=1, preprocessing={"resize": "shortest", "crop_fraction": 0.8})
    model = with_own_head(vit, size)
    images = [image for image in pixels((20, 30))] if None in size else [*pixels(size)]
    logits = model.predict(np.stack(images), verbose=0)
    expected = np.asarray(tf.nn.softmax(logits))
    found = keras_vit.classify(model, images, top=1)
    assert [best[0][0] for best in found] == [f"class {i}" for i in expected.argmax(-1)]
    np.testing.assert_allclose([best[0][1] for best in found], expected.max(-1), atol=1e-6)


def test_layers_that_scale_are_seen(trained_toy):
    vit = trained_toy(depth=1, preprocessing="imagenet", class_names=["a", "b", "c", "d", "e"])
    mean, variance = (255 * np.array(x) for x in (vit.preprocessing.mean, vit.preprocessing.std))
    image = pixels((16, 16), 1)
    scales = keras.layers.Normalization(mean=mean, variance=variance**2)
    model = keras.Sequential([keras.Input((16, 16, 3)), scales, vit])
    found = keras_vit.classify(model, image)
    assert [name for name, _ in found[0]] == [name for name, _ in vit.classify(image)[0]]
    np.testing.assert_allclose([p for _, p in found[0]], [p for _, p in vit.classify(image)[0]], atol=1e-5)
    with pytest.raises(ValueError, match="neither pixels"):
        keras_vit.classify(keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Rescaling(2.0), vit]), image)


def test_inspection_sees_what_the_inner_model_sees(toy, trained_toy):
    """A model without a head and a Dense layer around it are the model with this layer as its head."""
    expected_model = trained_toy()
    vit = toy(num_classes=0)
    vit.set_weights([w.numpy() for w in expected_model.weights if "/head/" not in w.path])
    model = keras.Sequential(
        [keras.Input((16, 16, 3)), keras.layers.Rescaling(1 / 127.5, -1), vit, keras.layers.Dense(5)]
    )
    model.layers[-1].set_weights(expected_model.head.get_weights())
    images = pixels((16, 16), 3)
    scaled = images / 127.5 - 1
    for function in (inspect.attention_rollout, inspect.gradient_rollout, inspect.attention_distance):
        np.testing.assert_allclose(function(model, images), function(expected_model, scaled), atol=1e-4)
    np.testing.assert_allclose(
        inspect.layer_features(model, images), inspect.layer_features(expected_model, scaled), atol=1e-4
    )
    np.testing.assert_allclose(inspect.filter_components(model, 5), inspect.filter_components(expected_model, 5))
    np.testing.assert_allclose(inspect.position_similarity(model), inspect.position_similarity(expected_model))


def test_models_without_one_path_through_ours_raise(toy):
    vit, other = toy(depth=1), toy(depth=1)
    inputs = keras.Input((16, 16, 3))

    class Subclass(keras.Model):
        def __init__(self):
            super().__init__()
            self.vit = vit

    twice = keras.Model(inputs, vit(inputs) - vit(-inputs))
    models = [twice, keras.Model(inputs, vit(inputs) + other(inputs)), Subclass(), None]
    for model in (*models, keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])):
        for use in (OuterModel, inspect.position_similarity):
            with pytest.raises(ValueError, match="Received"):
                use(model)
