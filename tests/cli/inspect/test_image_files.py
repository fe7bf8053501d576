"""Images of a folder, read for a model."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.rgb import as_rgb
from keras_vit_cli.inspect.image_files import list_images, read_images, without_damaged


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


def test_other_and_damaged_files_are_named(tmp_path, capsys):
    Image.new("RGB", (16, 16)).save(tmp_path / "1.jpg")
    (tmp_path / "2.jpg").write_bytes((tmp_path / "1.jpg").read_bytes()[:-40])
    (tmp_path / "3.HEIC").write_bytes(b"")
    (tmp_path / ".hidden").write_bytes(b"")
    files = list_images(tmp_path)
    assert [file.name for file in files] == ["1.jpg", "2.jpg"]
    assert f"1 skipped, since their names do not end in .jpg, .jpeg, .png, .gif, .bmp, .webp: {tmp_path}/3.HEIC" in (
        capsys.readouterr().err
    )
    assert without_damaged(files) == files[:1]
    assert f"1 skipped, since they cannot be read as images: {tmp_path}/2.jpg" in capsys.readouterr().err
    with pytest.raises(ValueError, match="2.jpg cannot be read as an image: Truncated File Read"):
        without_damaged(files[1:])
    with pytest.raises(ValueError, match="Pillow does not read HEIC: save it as JPEG"):
        as_rgb(tmp_path / "3.HEIC")
