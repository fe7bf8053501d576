"""The signatures preprocess images of any size and format as `Preprocessing` does."""

import functools
import io

import numpy as np
import pytest
import tensorflow as tf
from loaded_signatures import load
from PIL import Image
from scenes import encoded, scene

from keras_vit import Preprocessing
from keras_vit.export import write_saved_model
from keras_vit.export.serving import decode_images, preprocess_images

pytestmark = pytest.mark.slow

NAMES = ["tench", "great white shark", "crane", "crane", "jay, Pica"]
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
PREPARATIONS = {
    "squash": {},
    "squash-crop": {"crop_fraction": 0.8, "interpolation": "bicubic", "antialias": True, **IMAGENET},
    "shortest-area": {"resize": "shortest_area", "crop_fraction": 0.875, **IMAGENET},
    "shortest": {"resize": "shortest", "crop_fraction": 0.875, "interpolation": "lanczos3", **IMAGENET},
}


@pytest.mark.parametrize("name", PREPARATIONS)
def test_encoded_and_uint8_images(trained_toy, tmp_path, name):
    model = trained_toy(depth=1, preprocessing=Preprocessing(16, **PREPARATIONS[name]))
    signatures = load(write_saved_model(model, tmp_path / "model", NAMES))
    scenes = [scene(seed, size) for seed, size in enumerate([(80, 64), (16, 16), (21, 90), (7, 5), (18, 18)])]
    files = [encoded(one, form) for one in scenes for form in ("PNG", "JPEG", "BMP")]
    arrays = [np.asarray(one) for one in scenes]
    pixels = [np.asarray(Image.open(io.BytesIO(file))) for file in files]  # those of model.classify
    expected = tf.nn.softmax(model(model.preprocess(pixels)))
    assert np.abs(expected - np.mean(expected, axis=0)).max() > 1e-3
    found = signatures["serve_bytes"](files)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)

    order = np.argsort(-found["probabilities"], axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(found["top_classes"], order)
    np.testing.assert_array_equal(found["top_probabilities"], np.take_along_axis(found["probabilities"], order, 1))
    assert [[name.decode() for name in row] for row in found["top_class_names"]] == [
        [NAMES[i] for i in r] for r in order
    ]
    for array in arrays:
        batch = np.stack([array, array[::-1]])
        outputs = signatures["serve_uint8"](batch)
        np.testing.assert_allclose(outputs["probabilities"], tf.nn.softmax(model(model.preprocess(batch))), atol=1e-5)


def test_transparent_webp_files_are_decoded():
    image = scene(0, (9, 7))
    expected = Preprocessing(16)(np.asarray(image)[None])
    image.putalpha(100)
    file = encoded(image, "WEBP", lossless=True)
    np.testing.assert_allclose(decode_images(tf.constant([file]), Preprocessing(16)), expected, atol=1e-5)


def test_sizes_round_as_preprocessing_does():
    random = np.random.default_rng(0)
    for fraction in (1.0, 0.95, 0.9, 0.875):
        prepare = Preprocessing((14, 9), resize="shortest", crop_fraction=fraction, interpolation="nearest")
        signature = [tf.TensorSpec((None, None, None, 3), tf.uint8)]
        function = tf.function(functools.partial(preprocess_images, preprocessing=prepare), signature)
        for height, width in random.integers(1, 60, (40, 2)):
            pixels = random.integers(0, 256, (1, height, width, 3), dtype="uint8")
            # A graph divides by a constant as it multiplies; another pixel would be 1/128 off.
            np.testing.assert_allclose(function(pixels), prepare(pixels), atol=1e-6, err_msg=f"{height} x {width}")


def test_other_file_formats(trained_toy, tmp_path):
    model = trained_toy(depth=1)
    serve = load(write_saved_model(model, tmp_path / "model"))["serve_bytes"]
    palette = scene(2).quantize(16)
    files = [
        encoded(scene(0).convert("L"), "PNG"),
        encoded(scene(1).convert("RGBA"), "PNG"),
        encoded(palette, "GIF", save_all=True, append_images=[scene(3).quantize(16)]),
    ]
    files.append(encoded(scene(4), "WEBP", lossless=True))
    expected = [scene(0).convert("L").convert("RGB"), scene(1), palette.convert("RGB"), scene(4)]
    expected = tf.nn.softmax(model(model.preprocess([np.asarray(one) for one in expected])))
    np.testing.assert_allclose(serve(files)["probabilities"], expected, atol=1e-5)

    with pytest.raises(tf.errors.InvalidArgumentError, match="Input is empty"):
        serve([encoded(scene(0), "PNG"), b""])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
        serve([b"a text"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="BMP files with a palette are not supported"):
        serve([encoded(scene(0).quantize(16), "BMP")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="[Ii]nvalid|[Tt]runcated|[Cc]orrupt"):
        serve([encoded(scene(0), "PNG")[:200]])
