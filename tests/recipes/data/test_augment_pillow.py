"""3-Augment and its crop against the outputs of facebookresearch/deit's own code: tools/training_goldens.py."""

import io

import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA
from PIL import Image

from keras_vit.recipes.data.augment import augmentation
from keras_vit.recipes.data.augment_ops import solarize
from keras_vit.recipes.data.augment_pillow import NUM_DRAWS, color_jitter, gaussian_blur, grayscale, three_augment
from keras_vit.recipes.data.transforms import training_transform
from keras_vit.recipes.recipe import Augment, Data

GOLDENS = np.load(DATA / "three_augment.npz")
PHOTOGRAPH = tf.constant(Image.open(io.BytesIO(np.load(DATA / "augment.npz")["image_224_png"].tobytes())))
JITTER = ("brightness", "contrast", "saturation")
ORDERS = {("contrast", "brightness", "saturation"): 2.5 / 6}  # of itertools.permutations


def apply(name):
    """The operations in a golden's name, one after the other."""
    image, words = PHOTOGRAPH, name.split("_")
    if words[0] == "grayscale":
        return grayscale(image)
    if words[0] == "solarization":
        return solarize(image, 128)
    if words[0] == "blur":
        image, words = gaussian_blur(image, float(words[1])), words[2:]
    factors = dict(zip(words[::2], map(float, words[1::2])))
    order = ORDERS.get(tuple(factors), 0.0)
    return color_jitter(image, [factors.get(part, 1.0) for part in JITTER], order) if factors else image


@pytest.mark.parametrize("name", [name for name in GOLDENS if not name.startswith("simple")])
def test_operations_equal_deit(name):
    found = np.abs(apply(name)[::4, ::4].numpy().astype(int) - GOLDENS[name])
    assert found.max() <= 1 and (found > 0).mean() < 0.01
    changed = np.abs(GOLDENS[name].astype(int) - PHOTOGRAPH[::4, ::4]).max()
    assert changed > 5 or name == "blur_0.1"  # which is too small to change a pixel


def test_draws_choose_operation_radius_factors_and_order():
    same = [0.5] * 3 + [0.0]  # factors of 1
    for draw, name in ((0.1, "grayscale"), (0.5, "solarization")):
        result = three_augment(PHOTOGRAPH, tf.constant([draw, 0.0, *same]))[::4, ::4].numpy().astype(int)
        assert np.abs(result - GOLDENS[name]).max() <= 1
    result = three_augment(PHOTOGRAPH, tf.constant([0.9, (1.2 - 0.1) / 1.9, 0.0, 1.0, 1.0, 2.5 / 6]))[::4, ::4]
    found = np.abs(result.numpy().astype(int) - GOLDENS["blur_1.2_contrast_1.3_brightness_0.7_saturation_1.3"])
    assert found.max() <= 2 and (found > 1).mean() < 0.01
    function, num_draws = augmentation(Augment(three_augment=True))
    assert (function, num_draws) == (three_augment, NUM_DRAWS)


def test_orders_of_the_color_jitter_differ():
    results = {color_jitter(PHOTOGRAPH, [1.3, 1.3, 0.7], (order + 0.5) / 6).numpy().tobytes() for order in range(6)}
    assert len(results) == 6


def test_simple_crops_are_squares_of_the_image_with_mirrored_pixels_around_it():
    pixels = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3}
    data = Data(image_size=48, crop="simple", flip=False, interpolation="bicubic", antialias=True, **pixels)
    transform = tf.function(training_transform(data, 0, (0.0,) * 3, (1 / 255,) * 3))
    padded, image = GOLDENS["simple_padded"].astype("float32"), tf.constant(GOLDENS["simple_input"])
    assert padded.shape == (56, 80, 3)
    corners = []
    for index in tf.range(24, dtype=tf.int64):
        crop = np.clip(transform(index, image).numpy(), 0, 255)
        squares = np.lib.stride_tricks.sliding_window_view(padded, (48, 48, 3))[:, :, 0]
        errors = np.abs(squares - crop).max(axis=(2, 3, 4))
        corners.append(np.unravel_index(errors.argmin(), errors.shape))
        assert errors.min() <= 1.01  # Pillow rounds twice
    rows, columns = zip(*corners)
    assert (min(rows), max(rows)) == (0, 8) and min(columns) <= 6 and max(columns) >= 26


def test_a_training_image_is_augmented_before_it_is_normalized():
    data = Data(image_size=16, crop="none", augment=Augment(three_augment=True))
    transform = training_transform(data, 0, (0.5,) * 3, (0.5,) * 3)
    images = np.stack([transform(tf.constant(i, tf.int64), PHOTOGRAPH) for i in range(12)])
    assert np.abs(images).max() <= 1.0
    gray = (np.abs(images - images[..., :1]).max(axis=(1, 2, 3)) < 1e-6).sum()
    assert 1 <= gray <= 8
