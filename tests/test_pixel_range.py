"""Images of another range than a model's are noticed, noise and augmented images are not."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import Preprocessing
from keras_vit.pixel_range import IMAGENET, PixelRangeWarning, check_scaled, expected_range, scaled_range

RANDOM = np.random.default_rng(3)
PHOTO = RANDOM.uniform(0, 255, (2, 8, 8, 3)).astype("float32")
HALF, OF_IMAGENET = Preprocessing(8), Preprocessing(8, **IMAGENET)
UNSCALED = Preprocessing(8, mean=(0, 0, 0), std=(1 / 255,) * 3)
BOTH = pytest.mark.parametrize("preprocessing", [HALF, OF_IMAGENET], ids=["half", "ImageNet"])


def test_range_in_numbers_and_words():
    np.testing.assert_allclose(scaled_range((0.5,) * 3, (0.5,) * 3), (-1, 1))
    np.testing.assert_allclose(scaled_range(**IMAGENET), (-0.485 / 0.229, (1 - 0.406) / 0.225))
    assert expected_range(OF_IMAGENET).startswith("between -2.12 and 2.64, ")
    assumed = expected_range(Preprocessing(8, origin="assumed"))
    assert assumed.startswith("between -1 and 1, ") and assumed.endswith("(assumed)")


@BOTH
def test_preprocessing_twice_raises(preprocessing):
    ready = preprocessing(PHOTO)
    for images in (ready, [PHOTO[0], ready[1]]):
        with pytest.raises(ValueError, match="floats between -.* look preprocessed already"):
            preprocessing(images)


@BOTH
@pytest.mark.parametrize("kind", [np.asarray, tf.constant, keras.ops.convert_to_tensor])
def test_pixels_that_are_not_scaled_raise(preprocessing, kind):
    with pytest.raises(ValueError, match=r"floats between 0.* and 255. .*model.preprocess\(images\)"):
        check_scaled(kind(PHOTO), preprocessing)
    with pytest.raises(ValueError, match="floats between -12.* and 12"):
        check_scaled(kind(PHOTO - 127), preprocessing)


def test_what_may_be_right_is_a_warning():
    with pytest.warns(PixelRangeWarning, match=r"-1 and 1, .*\(assumed\)"):
        check_scaled(PHOTO, Preprocessing(8, origin="assumed"))
    with pytest.warns(PixelRangeWarning, match=r"\[0, 1\].*255 \* images"):
        check_scaled(PHOTO / 255, OF_IMAGENET)


def test_dark_images_and_other_scalings_are_no_mistake():
    OF_IMAGENET(np.where(PHOTO > 250, 2.5, 0.0))
    UNSCALED(np.where(PHOTO > 250, -3.0, PHOTO))
    check_scaled(PHOTO, UNSCALED)
    check_scaled(PHOTO / 255, Preprocessing(8, mean=(0, 0, 0), std=(1, 1, 1)))


@BOTH
def test_noise_and_what_has_no_values_pass(preprocessing):
    for images in (
        np.asarray(preprocessing(PHOTO)),
        4 / 3 * np.asarray(preprocessing(PHOTO)),  # mixed, brightened or resized with overshoot
        RANDOM.normal(size=(2, 64, 64, 3)),
        *(np.full((2, 8, 8, 3), value, "float32") for value in (0, 1, np.nan)),
        np.zeros((0, 8, 8, 3)),
        keras.Input((8, 8, 3)),
    ):
        check_scaled(images, preprocessing)
    tf.function(lambda images: check_scaled(images, preprocessing))(PHOTO)
