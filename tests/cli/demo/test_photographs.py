"""The packaged classifier on the photographs of the demo."""

from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit_cli.demo import photographs


@pytest.mark.slow
def test_photographs_are_classified():
    images = photographs.read_photographs()
    found = keras_vit.load(photographs.NAME).classify(list(images.values()), top=1)
    predicted = {name: best[0][0] for name, best in zip(images, found)}
    assert (predicted["cat.jpg"], predicted["airplane.jpg"]) == ("cat", "airplane")


def test_crops_have_the_labels_of_their_photographs():
    images = {"cat.jpg": np.zeros((40, 60, 3), "uint8"), "bird.jpg": np.full((50, 30, 3), 255, "uint8")}
    crops, labels = photographs._crops(images, ["bird", "cat"], (16, 12), seed=0)
    assert crops.shape == (photographs.NUM_CROPS, 16, 12, 3)
    np.testing.assert_array_equal(crops.max(axis=(1, 2, 3)), np.where(labels == 0, 255, 0))
    assert set(labels[::2]) == set(labels[1::2]) == {0, 1}


def test_every_photograph_has_a_license():
    text = (Path(photographs.__file__).parent / "images" / "README.md").read_text()
    assert all(f"`{name}`" in text for name in photographs.read_photographs())
