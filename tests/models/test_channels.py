"""Models of gray images and of other numbers of channels."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from goldens import golden_file, golden_io, golden_weights
from PIL import Image
from randomize import randomize
from safetensors.numpy import load_file

import keras_vit
from keras_vit.export import write_onnx, write_saved_model, write_tflite
from keras_vit.export.exported.opening import onnx_session, open_exported
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.export.tflite.metadata import read_description
from keras_vit.images.rgb import gray
from keras_vit.named_weights import PATCH_KERNEL, named_weights

PATCHES = "patch_embed.proj.weight"


def test_files_of_timm_are_adapted_as_by_timm(tmp_path):
    """adapt_input_conv of its models/_manipulate.py: the sum for one channel, else repeated, times 3 / channels."""
    arrays, io = golden_weights("timm_qk_norm"), golden_io("timm_qk_norm")
    rgb = keras_vit.load(golden_file(tmp_path, "timm_qk_norm"), num_heads=3, preprocessing="half")
    kernel = arrays[PATCHES]  # (D, 3, P, P)
    adapted = {1: kernel.sum(axis=1, keepdims=True), 5: np.concatenate([kernel, kernel[:, :2]], axis=1) * 3 / 5}
    for channels, expected in adapted.items():
        # From the RGB file, from a file of timm with `in_chans`, and from our RGB model.
        files = [golden_file(tmp_path, "timm_qk_norm"), tmp_path / "rgb.keras"]
        rgb.save(files[1])
        models = [keras_vit.load(file, channels=channels, preprocessing="half") for file in files[1:]]
        models.append(keras_vit.load(files[0], num_heads=3, channels=channels, preprocessing="half"))
        own = golden_file(tmp_path, "timm_qk_norm", **{PATCHES: expected.astype("float32")})
        models.append(keras_vit.load(own, num_heads=3, preprocessing="half"))
        for model in models:
            assert model.input_shape == (None, 32, 32, channels) and model.preprocessing.mean == (0.5,) * channels
            found = np.asarray(model.patch_embedding.projection.kernel)
            np.testing.assert_allclose(found, expected.transpose(2, 3, 1, 0), rtol=1e-5, atol=1e-7)
        images = io["images"] if channels == 5 else io["images"][..., :1]
        images = np.concatenate([images, images[..., :2]], axis=-1) if channels == 5 else images
        # By linearity: the five-channel model sees red and green twice, at 3 / 5 of their weights.
        expanded = images.repeat(3, axis=-1) if channels == 1 else images[..., :3] * np.float32([1.2, 1.2, 0.6])
        np.testing.assert_allclose(model(images), rgb(expanded), atol=1e-4)


@pytest.mark.parametrize("resnet", [{}, {"resnet_stages": (1,), "resnet_form": "cifar", "patch_size": 8}])
def test_gray_images_have_the_outputs_of_gray_rgb_images(trained_toy, images, tmp_path, resnet):
    model = trained_toy(depth=1, **resnet)
    model.save(tmp_path / "rgb.keras")
    gray_model = keras_vit.load(tmp_path / "rgb.keras", channels=1, preprocessing="half")
    one = images[..., :1]
    if not resnet:
        np.testing.assert_allclose(gray_model(one), model(np.repeat(one, 3, axis=-1)), atol=1e-4)
    name = "backbone/conv_root/kernel" if resnet else PATCH_KERNEL
    found, expected = (np.asarray(named_weights(m)[name]) for m in (gray_model, model))
    np.testing.assert_allclose(found, expected.sum(axis=2, keepdims=True), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", ["hf/", "m.npz", "m.keras"])
def test_saved_and_loaded_models_keep_their_channels(trained_toy, images, tmp_path, path):
    scaling = {"mean": 0.4, "std": 0.2}
    model = trained_toy(depth=1, channels=1, preprocessing=scaling)
    keras_vit.weights.save(model, tmp_path / path)
    again = keras_vit.load(tmp_path / path, image_size=16, num_heads=3, preprocessing=scaling)
    for copy in (again, again.with_head(5), again.resized(16)):
        assert copy.channels == 1 and copy.preprocessing.mean == (0.4,)
    np.testing.assert_allclose(again(images[..., :1]), model(images[..., :1]), atol=1e-5)
    if path == "hf/":
        assert json.loads((tmp_path / "hf" / "config.json").read_text())["num_channels"] == 1
        arrays = load_file(tmp_path / "hf" / "model.safetensors")
        assert arrays["vit.embeddings.patch_embeddings.projection.weight"].shape == (12, 1, 4, 4)


def test_gray_equals_pillow(toy, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype("uint8")
    expected = np.asarray(Image.fromarray(pixels).convert("L"))
    for array in (pixels, tf.constant(pixels)):
        np.testing.assert_array_equal(np.asarray(gray(array))[..., 0], expected)
    np.testing.assert_allclose(np.asarray(gray(pixels.astype("float32")))[..., 0], expected, atol=0.51)
    Image.fromarray(pixels).save(tmp_path / "rgb.png")
    Image.fromarray(expected).save(tmp_path / "gray.png")
    model = toy(depth=1, channels=1, preprocessing="imagenet")
    scaled = (expected / 255 - np.mean([0.485, 0.456, 0.406])) / np.mean([0.229, 0.224, 0.225])
    for image in (pixels, expected, tmp_path / "rgb.png", tmp_path / "gray.png", Image.fromarray(expected)):
        np.testing.assert_allclose(np.asarray(model.preprocess(image))[0, ..., 0], scaled, atol=1e-5)
    inputs = keras.Input((16, 16, 3))
    layer = keras.Model(inputs, model.preprocess(inputs))
    np.testing.assert_allclose(np.asarray(layer(pixels[None].astype("float32")))[0, ..., 0], scaled, atol=0.02)


def test_other_channels_and_mistakes(toy, images):
    model = toy(depth=1, channels=5)
    five = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 5)).astype("uint8")
    np.testing.assert_allclose(model.preprocess(five), five / 127.5 - 1, atol=1e-6)
    for call in (
        lambda: model.preprocess("photo.jpg"),
        lambda: model.preprocess(five[..., :3]),
        lambda: model(images),
        lambda: toy(channels=0),
        lambda: toy(channels=5, preprocessing={"mean": (0.1, 0.2), "std": (1, 1)}),
        lambda: toy(preprocessing={"mean": 0.5, "std": (1, 1)}),
        lambda: write_tflite(model, "unused", ["float32"]),
    ):
        with pytest.raises(ValueError, match="Received"):
            call()


@pytest.mark.extended
@pytest.mark.parametrize("channels", [1, 5])
def test_exports(trained_toy, tmp_path, channels):
    model = randomize(trained_toy(depth=1, channels=channels))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, channels)).astype("uint8")
    inputs = np.asarray(model.preprocess(pixels))
    expected = model.predict(inputs, verbose=0)
    session = onnx_session(write_onnx(model, tmp_path / "model.onnx"))
    np.testing.assert_allclose(session.run(None, {"images": inputs})[0], expected, atol=1e-5)
    signatures = tf.saved_model.load(str(write_saved_model(model, tmp_path / "saved"))).signatures
    probabilities = np.asarray(tf.nn.softmax(expected))
    served = signatures["serve_uint8"](images=tf.constant(pixels))["probabilities"]
    np.testing.assert_allclose(served, probabilities, atol=1e-5)
    assert ("serve_bytes" in signatures) == (channels == 1)
    exported = open_exported(tmp_path / "saved")
    np.testing.assert_allclose(exported.probabilities(pixels.astype("float32")), probabilities, atol=1e-5)
    if channels == 1:
        color = np.random.default_rng(1).integers(0, 256, (16, 16, 3)).astype("uint8")
        content = tf.io.encode_png(color)[None]
        found = signatures["serve_bytes"](image_bytes=content)["probabilities"]
        np.testing.assert_allclose(found, tf.nn.softmax(model(model.preprocess(color))), atol=1e-5)
        for file in write_tflite(model, tmp_path, ["float32", "int8"], np.repeat(pixels, 10, axis=0)).values():
            atol = 1e-5 if "float32" in file.name else 0.05
            np.testing.assert_allclose(run_tflite(file, pixels.astype("float32"))[0], probabilities, atol=atol)
            description = read_description(file)
            assert (
                description.signatures["classify"].inputs[0].shape == (1, 16, 16, 1) and description.mediapipe_problem
            )
