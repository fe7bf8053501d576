"""Images of a folder, read for a model."""

import numpy as np
import pytest
from PIL import Image

from keras_vit_cli.inspect.image_files import list_images, read_images


def test_16_bit_images_have_the_brightness_of_8_bit_ones(toy, tmp_path):
    gray = np.arange(256, dtype="uint8").reshape(16, 16)
    Image.fromarray(gray).save(tmp_path / "1.png")
    Image.fromarray(gray.astype("uint16") * 257).save(tmp_path / "2.png")
    batch = read_images(toy().preprocessing, tmp_path, list_images(tmp_path))
    np.testing.assert_array_equal(batch.pixels[0], batch.pixels[1])
    np.testing.assert_array_equal(batch.pixels[0, ..., 0], gray)


def test_float_images_raise(toy, tmp_path):
    Image.new("F", (16, 16)).save(tmp_path / "1.tiff")
    with pytest.raises(ValueError, match=r"1.tiff cannot be read as an image: the pixels are floats"):
        read_images(toy().preprocessing, tmp_path, [tmp_path / "1.tiff"])
