"""The signatures preprocess images of any size and format as `Preprocessing` does."""

import functools
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scenes import encoded, scene

from keras_vit import Preprocessing
from keras_vit.export.saved_model import decode_images, preprocess_images

pytestmark = pytest.mark.slow

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
CROPPED = {"crop_fraction": 0.8, "interpolation": "bicubic", "antialias": True, **IMAGENET}
PREPARATIONS = {
    "squash": {},
    "squash-crop": CROPPED,
    "shortest-area": {"resize": "shortest_area", "crop_fraction": 0.875, **IMAGENET},
    "shortest": {"resize": "shortest", "crop_fraction": 0.875, "interpolation": "lanczos3", **IMAGENET},
}
SCENES = [scene(seed, size) for seed, size in enumerate([(80, 64), (16, 16), (21, 90), (7, 5), (18, 18)])]
FILES = [encoded(one, form) for one in SCENES for form in ("PNG", "JPEG", "BMP")]


def pixels_of(files):
    """Those of `model.classify`."""
    return [np.asarray(Image.open(io.BytesIO(file))) for file in files]


@pytest.fixture(scope="module")
def decode():
    """Decodes files in a graph."""
    return tf.function(functools.partial(decode_images, preprocessing=Preprocessing(16)), autograph=False)


@pytest.mark.parametrize("name", PREPARATIONS)
def test_encoded_images(name):
    prepare = Preprocessing(16, **PREPARATIONS[name])
    decode = tf.function(functools.partial(decode_images, preprocessing=prepare), autograph=False)
    expected = np.concatenate([prepare(pixels) for pixels in pixels_of(FILES)])
    np.testing.assert_allclose(decode(tf.constant(FILES)), expected, atol=1e-5 / min(prepare.std))


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


def test_other_file_formats(decode):
    palette, transparent = scene(2).quantize(16), scene(5, (9, 7))
    images = [scene(0).convert("L").convert("RGB"), scene(1), palette.convert("RGB"), scene(4), scene(5, (9, 7))]
    transparent.putalpha(100)
    files = [
        encoded(scene(0).convert("L"), "PNG"),
        encoded(scene(1).convert("RGBA"), "PNG"),
        encoded(palette, "GIF", save_all=True, append_images=[scene(3).quantize(16)]),
        encoded(scene(4), "WEBP", lossless=True),
        encoded(transparent, "WEBP", lossless=True),
    ]
    expected = np.concatenate([Preprocessing(16)(np.asarray(one)) for one in images])
    np.testing.assert_allclose(decode(tf.constant(files)), expected, atol=1e-5)


@pytest.mark.parametrize(
    "file,message",
    [
        (b"", r"Expected JPEG.* \[1\]"),
        (b"a text", r"Expected JPEG.* \[1\]"),
        (encoded(scene(0).quantize(16), "BMP"), "BMP files with a palette"),
        (encoded(scene(0), "PNG")[:200], "[Ii]nvalid|[Tt]runcated|[Cc]orrupt"),
    ],
    ids=["empty", "text", "palette", "truncated"],
)
def test_files_that_are_no_images(decode, file, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decode(tf.constant([encoded(scene(0), "PNG"), file]))
