"""Images as users have them become the RGB pixels that Pillow and NumPy say they are."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.rgb import as_rgb

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 4), dtype="uint8")
GRAY, RGB = PIXELS[..., 0], PIXELS[..., :3]
REPEATED = np.stack([GRAY] * 3, axis=-1)


@pytest.mark.parametrize(
    "image,expected",
    [
        (RGB, RGB),
        (np.stack([RGB, RGB]), np.stack([RGB, RGB])),
        (PIXELS, RGB),
        (GRAY, REPEATED),
        (GRAY[..., None], REPEATED),
        (GRAY[None, ..., None], REPEATED[None]),
        (tf.constant(GRAY), REPEATED),
        (tf.constant(PIXELS), RGB),
        (Image.fromarray(RGB), RGB),
        (Image.fromarray(PIXELS), RGB),
        (Image.fromarray(GRAY), REPEATED),
        (Image.fromarray(GRAY.astype("uint16") * 257), REPEATED),
        (Image.fromarray(RGB).quantize(24, dither=Image.Dither.NONE), RGB),
    ],
    ids=lambda value: getattr(value, "mode", None) or str(getattr(value, "shape", "")),
)
def test_kinds_of_images(image, expected):
    found = as_rgb(image)
    assert np.asarray(found).dtype == np.uint8
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_paths(tmp_path, kind):
    Image.fromarray(RGB).save(tmp_path / "a.png")
    np.testing.assert_array_equal(as_rgb(kind(tmp_path / "a.png")), RGB)


def test_orientation_of_cameras(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate clockwise to show
    Image.fromarray(RGB).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(as_rgb(tmp_path / "a.png"), np.rot90(RGB, -1))


def test_symbolic_tensors():
    function = tf.function(as_rgb, input_signature=[tf.TensorSpec((None, None, None, 1), tf.uint8)])
    np.testing.assert_array_equal(function(GRAY[None, ..., None]), REPEATED[None])


def test_files_that_are_no_images(tmp_path):
    (tmp_path / "a.jpg").write_text("text")
    with pytest.raises(ValueError, match="a.jpg cannot be read as an image: cannot identify"):
        as_rgb(tmp_path / "a.jpg")
    with pytest.raises(FileNotFoundError, match="There is no image .*b.jpg"):
        as_rgb("b.jpg")
    with pytest.raises(ValueError, match=r"is a folder. Expected image files, such as list\(pathlib"):
        as_rgb(tmp_path)
    Image.fromarray(GRAY.astype("float32")).save(tmp_path / "c.tiff")
    with pytest.raises(ValueError, match="c.tiff cannot be read .* floats, of unknown range"):
        as_rgb(tmp_path / "c.tiff")
