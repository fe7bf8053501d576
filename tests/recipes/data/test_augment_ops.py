"""The operations of RandAugment and AutoAugment against those of tf-models-official."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data.augment_ops import import_official, operations

pytestmark = pytest.mark.augment

COLOR_OPERATIONS = ("AutoContrast", "Equalize", "Invert", "Posterize", "Solarize", "Color", "Contrast", "Brightness")


def apply_operation(name, image, level, sign=1.0, point=(0.5, 0.5)):
    return operations()[name](image, level, tf.constant(sign), tf.constant(point)).numpy().astype(int)


def apply_official(name, image, level):
    official = import_official()
    function, _, arguments = official._parse_policy_info(name, 1.0, level, [128] * 3, 40.0, 100.0)
    return function(image, None, *arguments)[0].numpy().astype(int)


@pytest.mark.parametrize("level", [0.0, 2.0, 7.0, 10.0, 15.0, 20.0, 30.0])
@pytest.mark.parametrize("name", [*COLOR_OPERATIONS, "Sharpness", "SolarizeAdd"])
def test_color_operations_match_tf_models_official(smooth_image, name, level):
    # Sharpness: an exact thirteenth may be rounded down to the value below, in both.
    tolerance = 1 + level / 5 if name == "Sharpness" else 0
    difference = apply_operation(name, smooth_image, level) - apply_official(name, smooth_image, level)
    assert np.abs(difference).max() <= tolerance


def test_flat_channels_are_unchanged():
    flat = tf.constant(np.full((8, 8, 3), 77), tf.uint8)
    for name in ("AutoContrast", "Equalize", "Sharpness"):
        np.testing.assert_array_equal(apply_operation(name, flat, 10.0), flat)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ["Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_geometric_operations_match_tf_models_official_with_gray_fill(smooth_image, name, sign, monkeypatch):
    official = import_official()
    monkeypatch.setattr(official, "_randomly_negate_tensor", lambda value: value * sign)
    result = apply_operation(name, smooth_image, 6.0, sign)
    # Its translations are in pixels; ours scale with the image. It reflects what is outside; here it is made to fill.
    function, _, (argument, _) = official._parse_policy_info(name, 1.0, 6.0, [128] * 3, 40.0, 100.0)
    if name.startswith("Translate"):
        argument = round(60 * 32 / 224) * sign

    def transform(image, transforms):
        moved = tf.raw_ops.ImageProjectiveTransformV3(
            images=tf.reshape(image, (1, 24, 32, 4)),
            transforms=tf.reshape(tf.cast(transforms, tf.float32), (1, 8)),
            output_shape=(24, 32),
            fill_value=0.0,
            fill_mode="CONSTANT",
            interpolation="NEAREST",
        )
        return tf.reshape(moved, image.shape)

    def translate(image, translations):
        return transform(image, official._convert_translation_to_transform(translations))

    monkeypatch.setattr(official, "transform", transform)
    monkeypatch.setattr(official, "translate", translate)
    expected = function(smooth_image, None, argument, [128] * 3)[0].numpy().astype(int)
    assert (result == 128).all(axis=-1).any()
    assert (result != expected).any(axis=-1).mean() < 0.02  # coordinates halfway between two pixels


def test_translation_by_more_than_the_image_leaves_gray(smooth_image):
    narrow = smooth_image[:, :8]
    assert (apply_operation("TranslateX", narrow, 30.0) == apply_operation("TranslateX", narrow, 30.0, -1.0)).all()
    moved = apply_operation("TranslateY", smooth_image, 10.0, 1.0)
    np.testing.assert_array_equal(moved[:-14], smooth_image[14:])
    assert (moved[-14:] == 128).all()


def test_cutout_fills_a_square_around_its_point(smooth_image):
    half = round(40 * 32 / 224)
    cut = apply_operation("Cutout", smooth_image, 10.0, point=(0.5, 0.0))
    np.testing.assert_array_equal(cut[12 - half : 12 + half, :half], 128)
    cut[12 - half : 12 + half, :half] = smooth_image[12 - half : 12 + half, :half]
    np.testing.assert_array_equal(cut, smooth_image)
