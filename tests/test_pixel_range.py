"""Images of another range than a model's are noticed, noise and augmented images are not."""

import numpy as np
import pytest

from keras_vit import Preprocessing
from keras_vit.pixel_range import IMAGENET, expected_range, scaled_range

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


def test_dark_images_and_other_scalings_are_no_mistake():
    OF_IMAGENET(np.where(PHOTO > 250, 2.5, 0.0))
    UNSCALED(np.where(PHOTO > 250, -3.0, PHOTO))
    HALF(np.zeros((2, 8, 8, 3), "float32"))
