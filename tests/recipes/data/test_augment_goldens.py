"""RandAugment's operations against outputs of big_vision and timm for a photograph, Pillow and tf-models-official.

tests/data/augment.npz holds the photograph and every fourth pixel, in rows and columns, of their outputs.
"""

import io

import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA
from PIL import Image

from keras_vit.recipes.data.augment import CIFAR10_POLICY, IMAGENET_POLICY
from keras_vit.recipes.data.augment_ops import BIG_VISION_OPERATIONS, OPERATIONS
from keras_vit.recipes.data.augment_pillow import increasing_operations

GOLDENS = np.load(DATA / "augment.npz")
BIG_VISION = [name for name in GOLDENS if name.startswith(("big_vision_224_", "big_vision_96_"))]
# Exact thirteenths: big_vision multiplies by a rounded 1 / 13 and then truncates.
LARGEST = {"Sharpness_0": 1, "Sharpness_10": 1, "Sharpness_20": 3}
FILL = (124, 116, 104)
# timm draws the interpolation at random where none is chosen: these three are bilinear. DeiT chooses bicubic.
TIMM = [
    name
    for name in GOLDENS
    if name.startswith("timm") and not name.endswith(("_ShearX", "_TranslateXRel", "_TranslateYRel"))
]
AFFINE = {
    "ShearX": lambda level: (1, 0.03 * level, 0, 0, 1, 0),
    "ShearY": lambda level: (1, 0, 0, 0.03 * level, 1, 0),
    "TranslateXRel": lambda level: (1, 0, 0.045 * level * 224, 0, 1, 0),
    "TranslateYRel": lambda level: (1, 0, 0, 0, 1, 0.045 * level * 224),
}


def photograph(size):
    return np.asarray(Image.open(io.BytesIO(GOLDENS[f"image_{size}_png"].tobytes())))


def difference(result, expected):
    return np.abs(np.asarray(result).astype(int) - expected)


@pytest.mark.parametrize("golden", BIG_VISION)
def test_operations_equal_big_vision(golden):
    size, name, level = golden.removeprefix("big_vision_").split("_")
    function = BIG_VISION_OPERATIONS[name]
    result = function(tf.constant(photograph(size)), float(level), tf.constant(1.0), tf.constant((0.5, 0.5)))
    found = difference(result[::4, ::4], GOLDENS[golden])
    assert found.max() <= LARGEST.get(f"{name}_{level}", 0) and (found > 0).mean() < 0.005


@pytest.mark.parametrize("golden", TIMM)
def test_increasing_operations_equal_timm(golden):
    function = increasing_operations(FILL)[golden.removeprefix("timm_m9_")]
    result = function(tf.constant(photograph(224)), tf.constant(9.0), tf.constant(-1.0))
    found = difference(result[::4, ::4], GOLDENS[golden])
    assert found.max() <= 1 and (found > 0).mean() < 0.01


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", [*AFFINE, "Rotate"])
def test_geometric_operations_equal_pillow(name, sign):
    image, level = Image.fromarray(photograph(224)), 6.3
    bicubic = {"resample": Image.Resampling.BICUBIC, "fillcolor": FILL}
    if name == "Rotate":
        expected = image.rotate(3 * level * sign, **bicubic)
    else:
        expected = image.transform(image.size, Image.Transform.AFFINE, AFFINE[name](level * sign), **bicubic)
    result = increasing_operations(FILL)[name](tf.constant(np.asarray(image)), tf.constant(level), tf.constant(sign))
    found = difference(result, np.asarray(expected))
    assert (np.asarray(expected) == FILL).all(axis=-1).mean() > 0.05
    # Float32 may put a point on the other side of the edge.
    assert (found > 1).any(axis=-1).mean() < 0.001 and (found > 0).mean() < 0.01


def test_levels_0_and_10_of_the_increasing_set():
    image, increasing = tf.constant(photograph(224)), increasing_operations(FILL)
    zero, ten, plus = tf.constant(0.0), tf.constant(10.0), tf.constant(1.0)
    unchanged = {"SolarizeIncreasing", "SolarizeAdd", "Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"}
    unchanged |= {"ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing"}
    for name in unchanged:
        np.testing.assert_array_equal(increasing[name](image, zero, plus), image)
    np.testing.assert_array_equal(increasing["PosterizeIncreasing"](image, zero, plus), image.numpy() & 0xF0)
    assert not increasing["PosterizeIncreasing"](image, ten, plus).numpy().any()
    np.testing.assert_array_equal(increasing["SolarizeIncreasing"](image, ten, plus), 255 - image.numpy())


COLOR_OPERATIONS = ("AutoContrast", "Equalize", "Invert", "Posterize", "Solarize", "Color", "Contrast", "Brightness")


def apply_operation(name, image, level, sign=1.0, point=(0.5, 0.5)):
    return OPERATIONS[name](image, level, tf.constant(sign), tf.constant(point)).numpy().astype(int)


@pytest.fixture(scope="module")
def official():
    """tf-models-official, of which no release supports TensorFlow 2.21 yet."""
    return pytest.importorskip("official.vision.ops.augment")


def apply_official(official, name, image, level):
    function, _, arguments = official._parse_policy_info(name, 1.0, level, [128] * 3, 40.0, 100.0)
    return function(image, None, *arguments)[0].numpy().astype(int)


@pytest.mark.parametrize("level", [0.0, 3.0, 5.0, 7.0, 10.0, 30.0])
@pytest.mark.parametrize("name", [*COLOR_OPERATIONS, "Sharpness", "SolarizeAdd"])
def test_color_operations_match_tf_models_official(official, name, level):
    # All pairs of values of two channels.
    first, second = np.mgrid[:256, :256]
    image = tf.constant(np.stack([first, second, (7 * first + 3 * second) % 256], axis=-1), tf.uint8)
    # Sharpness: it may round an exact thirteenth down to the value below.
    tolerance = 1 + level / 5 if name == "Sharpness" else 0
    difference = apply_operation(name, image, level) - apply_official(official, name, image, level)
    assert np.abs(difference).max() <= tolerance


def test_policies_equal_those_of_tf_models_official(official):
    assert list(map(list, IMAGENET_POLICY)) == official.AutoAugment.policy_reduced_imagenet()
    assert list(map(list, CIFAR10_POLICY)) == official.AutoAugment.policy_reduced_cifar10()


def test_flat_channels_are_unchanged():
    flat = tf.constant(np.full((8, 8, 3), 77), tf.uint8)
    for name in ("AutoContrast", "Equalize", "Sharpness"):
        np.testing.assert_array_equal(apply_operation(name, flat, 10.0), flat)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ["Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_geometric_operations_match_tf_models_official_with_gray_fill(official, smooth_image, name, sign, monkeypatch):
    monkeypatch.setattr(official, "_randomly_negate_tensor", lambda value: value * sign)
    result = apply_operation(name, smooth_image, 6.0, sign)
    # Its translations are in pixels; ours scale with the image. It reflects what is outside; here it is made to fill.
    function, _, (argument, _) = official._parse_policy_info(name, 1.0, 6.0, [128] * 3, 40.0, 100.0)
    if name.startswith("Translate"):
        argument = round(60 * 32 / 224) * sign

    def transform(image, transforms):
        images, transforms = tf.reshape(image, (1, 24, 32, 4)), tf.reshape(tf.cast(transforms, tf.float32), (1, 8))
        filled = {"fill_value": 0.0, "fill_mode": "CONSTANT", "interpolation": "NEAREST", "output_shape": (24, 32)}
        moved = tf.raw_ops.ImageProjectiveTransformV3(images=images, transforms=transforms, **filled)
        return tf.reshape(moved, image.shape)

    def translate(image, translations):
        return transform(image, official._convert_translation_to_transform(translations))

    monkeypatch.setattr(official, "transform", transform)
    monkeypatch.setattr(official, "translate", translate)
    expected = function(smooth_image, None, argument, [128] * 3)[0].numpy().astype(int)
    assert (result == 128).all(axis=-1).any()
    assert (result != expected).any(axis=-1).mean() < 0.02  # coordinates halfway between two pixels


def test_translation_and_cutout_leave_gray(smooth_image):
    narrow = smooth_image[:, :8]
    assert (apply_operation("TranslateX", narrow, 30.0) == apply_operation("TranslateX", narrow, 30.0, -1.0)).all()
    moved = apply_operation("TranslateY", smooth_image, 10.0, 1.0)
    np.testing.assert_array_equal(moved[:-14], smooth_image[14:])
    assert (moved[-14:] == 128).all()
    half = round(40 * 32 / 224)
    cut = apply_operation("Cutout", smooth_image, 10.0, point=(0.5, 0.0))
    np.testing.assert_array_equal(cut[12 - half : 12 + half, :half], 128)
    cut[12 - half : 12 + half, :half] = smooth_image[12 - half : 12 + half, :half]
    np.testing.assert_array_equal(cut, smooth_image)
