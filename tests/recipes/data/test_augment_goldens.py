"""RandAugment's operations against outputs of big_vision and timm for a photograph, and against Pillow.

tests/data/augment.npz holds the photograph and every fourth pixel, in rows and columns, of their outputs.
"""

import io

import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA
from PIL import Image

from keras_vit.recipes.data.augment_ops import big_vision_operations
from keras_vit.recipes.data.augment_timm import increasing_operations

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


@pytest.mark.augment
@pytest.mark.parametrize("golden", BIG_VISION)
def test_operations_equal_big_vision(golden):
    size, name, level = golden.removeprefix("big_vision_").split("_")
    function = big_vision_operations()[name]
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
    image, operations = tf.constant(photograph(224)), increasing_operations(FILL)
    zero, ten, plus = tf.constant(0.0), tf.constant(10.0), tf.constant(1.0)
    unchanged = {"SolarizeIncreasing", "SolarizeAdd", "Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"}
    unchanged |= {"ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing"}
    for name in unchanged:
        np.testing.assert_array_equal(operations[name](image, zero, plus), image)
    np.testing.assert_array_equal(operations["PosterizeIncreasing"](image, zero, plus), image.numpy() & 0xF0)
    assert not operations["PosterizeIncreasing"](image, ten, plus).numpy().any()
    np.testing.assert_array_equal(operations["SolarizeIncreasing"](image, ten, plus), 255 - image.numpy())
