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
