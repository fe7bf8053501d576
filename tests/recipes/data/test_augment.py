"""RandAugment and AutoAugment policies, and random erasing."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance

from keras_vit.recipes.data.augment import CIFAR10_OPERATIONS, ERASING_ATTEMPTS, augmentation, erase
from keras_vit.recipes.data.augment_ops import BIG_VISION_OPERATIONS, OPERATIONS
from keras_vit.recipes.data.augment_pillow import increasing_operations, random_level
from keras_vit.recipes.recipe import Augment

# big_vision, pp/archive/autoaugment.py, available_ops; timm, data/auto_augment.py, _RAND_INCREASING_TRANSFORMS.
BIG_VISION_ORDER = (
    "AutoContrast Equalize Invert Rotate Posterize Solarize Color Contrast Brightness Sharpness ShearX ShearY "
    "TranslateX TranslateY Cutout SolarizeAdd"
).split()
TIMM_ORDER = (
    "AutoContrast Equalize Invert Rotate PosterizeIncreasing SolarizeIncreasing SolarizeAdd ColorIncreasing "
    "ContrastIncreasing BrightnessIncreasing SharpnessIncreasing ShearX ShearY TranslateXRel TranslateYRel"
).split()


def apply_operation(name, image, level, sign=1.0, point=(0.5, 0.5)):
    return OPERATIONS[name](image, level, tf.constant(sign), tf.constant(point))


def test_randaugment_applies_the_drawn_operations(smooth_image):
    distort, num_draws = augmentation(Augment(randaugment_layers=2, randaugment_magnitude=10))
    names = list(BIG_VISION_OPERATIONS)
    assert names == BIG_VISION_ORDER and num_draws == 8
    for first, second in (("Invert", "Color"), ("ShearX", "Posterize"), ("TranslateY", "Cutout")):
        draws = [(names.index(first) + 0.5) / 16, 0.9, 0.2, 0.3, (names.index(second) + 0.5) / 16, 0.1, 0.7, 0.6]
        expected = apply_operation(first, smooth_image, 10.0, 1.0, (0.2, 0.3))
        expected = apply_operation(second, expected, 10.0, -1.0, (0.7, 0.6))
        np.testing.assert_array_equal(distort(smooth_image, tf.constant(draws)), expected)
    # big_vision's contrast: one gray from the number of pixels, 24 * 32 // 256; then inverted.
    draws = tf.constant([(names.index("Contrast") + 0.5) / 16, 0, 0, 0, (names.index("Invert") + 0.5) / 16, 0, 0, 0])
    contrast = np.clip(3 + 1.9 * (smooth_image.numpy().astype("float32") - 3), 0, 255).astype(int)
    assert np.abs(255 - contrast - distort(smooth_image, draws)).max() <= 1
    # There is no 17th that changes nothing: the largest draw applies the last operation, twice.
    expected = apply_operation("SolarizeAdd", apply_operation("SolarizeAdd", smooth_image, 10.0), 10.0)
    np.testing.assert_array_equal(distort(smooth_image, tf.fill((8,), 0.99)), expected)
    assert np.any(expected != smooth_image)


def test_timm_policy_applies_half_of_the_drawn_operations_at_random_levels(smooth_image):
    recipe = Augment(randaugment_layers=2, randaugment_magnitude=9, randaugment_policy="timm")
    distort, num_draws = augmentation(recipe, mean=(0.485, 0.456, 0.406))
    functions = increasing_operations((124, 116, 104))
    names = list(functions)
    assert names == TIMM_ORDER and num_draws == 8
    shear, solarize = (names.index("ShearX") + 0.5) / 15, (names.index("SolarizeIncreasing") + 0.5) / 15
    # A draw of 0.8413 is one standard deviation above the mean, which is 0.5.
    draws = tf.constant([shear, 0.1, 0.49, 0.8413, solarize, 0.9, 0.49, 0.1587])
    expected = functions["ShearX"](smooth_image, tf.constant(9.5), tf.constant(-1.0))
    solarized = expected.numpy()
    solarized = np.where(solarized < 256 - int(8.5 / 10 * 256), solarized, 255 - solarized)
    assert np.abs(distort(smooth_image, draws).numpy().astype(int) - solarized).max() <= 1
    skipped = tf.constant([shear, 0.1, 0.51, 0.5, solarize, 0.9, 0.51, 0.5])
    np.testing.assert_array_equal(distort(smooth_image, skipped), smooth_image)


def test_levels_of_timm_have_their_mean_and_deviation():
    levels = random_level(9.0, tf.random.stateless_uniform((20_000,), (0, 1)))
    inside = levels.numpy()[levels.numpy() < 10]
    # Above 10, 2 standard deviations from the mean, they are clipped.
    assert abs((levels.numpy() == 10).mean() - 0.0228) < 0.004 and levels.numpy().max() == 10
    assert abs(np.median(levels) - 9) < 0.02 and abs(np.subtract(*np.quantile(levels, (0.841, 0.5))) - 0.5) < 0.02
    assert abs(inside.mean() - 8.97) < 0.02


def test_autoaugment_applies_operations_by_their_probabilities(smooth_image):
    distort, _ = augmentation(Augment(autoaugment="imagenet"))
    pair = 2.5 / 25  # Equalize with probability 0.8 at level 8, then with 0.6 at level 3
    unchanged = distort(smooth_image, tf.constant([pair, 0.81, 0.5, 0.5, 0.5, 0.61, 0.5, 0.5, 0.5]))
    np.testing.assert_array_equal(unchanged, smooth_image)
    first_only = distort(smooth_image, tf.constant([pair, 0.79, 0.5, 0.5, 0.5, 0.61, 0.5, 0.5, 0.5]))
    np.testing.assert_array_equal(first_only, apply_operation("Equalize", smooth_image, 8.0))


def test_autoaugment_for_cifar10(smooth_image):
    """The first and the last pair of table 7 of arXiv 1805.09501."""
    distort, _ = augmentation(Augment(autoaugment="cifar10"))
    first = distort(smooth_image, tf.constant([0.5 / 25, 0.09, 0.5, 0.5, 0.5, 0.19, 0.9, 0.5, 0.5]))
    inverted = tf.constant(apply_operation("Invert", smooth_image, 7.0), tf.uint8)
    expected = CIFAR10_OPERATIONS["Contrast"](inverted, 6.0, None, None)
    np.testing.assert_array_equal(first, expected)
    last = distort(smooth_image, tf.constant([24.5 / 25, 0.71, 0.5, 0.5, 0.5, 0.89, 0.5, 0.5, 0.5]))
    np.testing.assert_array_equal(last, apply_operation("AutoContrast", smooth_image, 1.0))


def test_operations_of_autoaugment_for_cifar10(smooth_image):
    """Numbers of the 256 values by the authors' ImageOps.solarize(image, 256 - int(level * 256 / 10)); pixels moved by
    the level; the contrast of Pillow."""
    values = tf.constant(np.arange(256).reshape(16, 16, 1).repeat(3, axis=2), tf.uint8)
    for level, inverted in ((2, 51), (3, 76), (5, 128), (8, 204)):
        solarized = CIFAR10_OPERATIONS["Solarize"](values, float(level), 1.0, None)
        assert np.sum(solarized[..., 0] != values[..., 0]) == inverted
    columns = tf.constant(np.arange(32).reshape(1, 32, 1).repeat(32, axis=0).repeat(3, axis=2), tf.uint8)
    for level in (3, 8, 9):
        moved = CIFAR10_OPERATIONS["TranslateX"](columns, float(level), tf.constant(1.0), None)
        np.testing.assert_array_equal(moved[:, : 32 - level], columns[:, level:])
    for level in (1, 6, 7):
        contrast = CIFAR10_OPERATIONS["Contrast"](smooth_image, float(level), None, None).numpy().astype(int)
        pillow = ImageEnhance.Contrast(Image.fromarray(smooth_image.numpy())).enhance(level / 10 * 1.8 + 0.1)
        assert np.abs(contrast - np.asarray(pillow)).max() <= 1


@pytest.mark.slow
def test_erasing_fills_one_rectangle_with_noise():
    image, num_erased, areas = tf.fill((32, 40, 3), 7.0), 0, []

    @tf.function
    def erase_by_index(index):
        draws = tf.random.stateless_uniform((1 + 4 * ERASING_ATTEMPTS,), tf.stack([1, index]))
        return erase(image, 0.25, draws, tf.stack([2, index]))

    for index in tf.range(150):
        changed = (erase_by_index(index).numpy() != 7.0).all(axis=-1)
        if changed.any():
            rows, columns = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
            assert changed[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
            areas.append(changed.mean())
            num_erased += 1
    assert 22 < num_erased < 53
    assert 0.015 < min(areas) < 0.08 and 0.25 < max(areas) < 0.36
