"""Subclasses with a forward pass of their own: every file returns what `call` returns."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import TOY

import keras_vit
from keras_vit.export import write_onnx, write_saved_model, write_tflite
from keras_vit.export.exported.opening import onnx_session
from keras_vit.export.tflite.graph import run_tflite


@keras.saving.register_keras_serializable("tests")
class Embedder(keras_vit.VisionTransformer):
    """Eight values of length 1."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.projector = keras.layers.Dense(8)

    def call(self, images, training=None):
        return keras.ops.normalize(self.projector(self.features(images, training=training)), axis=-1)


@keras.saving.register_keras_serializable("tests")
class Reversed(keras_vit.VisionTransformer):
    """Logits with the opposite sign."""

    def call(self, images, training=None):
        return -super().call(images, training=training)


@pytest.mark.parametrize(
    "kind,arguments,output",
    [
        (Embedder, {"num_classes": 0}, "features"),
        (Reversed, {"num_classes": 8, "projection": True}, "projection"),
        (Reversed, {}, "logits"),
    ],
)
def test_files_return_what_call_returns(kind, arguments, output, images, tmp_path):
    model = kind(**{**TOY, "depth": 1, **arguments})
    pixels = images[:3]
    inputs = np.asarray(model.preprocess(pixels))
    for weight in model.weights if output == "logits" else ():
        weight.assign(weight + 0.1)  # of the head, which is zero
    expected = keras.ops.convert_to_numpy(model(inputs))
    probabilities = np.asarray(tf.nn.softmax(expected))
    session = onnx_session(write_onnx(model, tmp_path / "model.onnx"))
    np.testing.assert_allclose(session.run([output], {"images": inputs})[0], expected, atol=1e-5)
    saved = tf.saved_model.load(str(write_saved_model(model, tmp_path / "saved")))
    served = saved.signatures["serve_uint8"](images=tf.constant(pixels.astype("uint8")))
    signature = "classify" if output == "logits" else "embed"
    expected = probabilities if output == "logits" else expected
    np.testing.assert_allclose(served["probabilities" if output == "logits" else output], expected, atol=1e-5)
    file = write_tflite(model, tmp_path, ["float32"], signatures=[signature])["float32"]
    np.testing.assert_allclose(run_tflite(file, pixels, signature)[0], expected, atol=1e-5)
