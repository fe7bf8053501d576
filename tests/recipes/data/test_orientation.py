"""EXIF orientations, against Pillow's own reader."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.recipes.data.decode import decode, decode_window
from keras_vit.recipes.data.orientation import orientation, turn_upright


def photograph(value, kind="JPEG", **options):
    """An encoded photograph of 24 x 40 pixels with an orientation after other tags."""
    corners = np.zeros((24, 40, 3), "uint8")
    corners[:12, :20], corners[:12, 20:], corners[12:, :20] = (250, 30, 30), (30, 250, 30), (30, 30, 250)
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "A camera", "A model"
    if value is not None:
        exif[0x0112] = value
    content = io.BytesIO()
    Image.fromarray(corners).save(content, kind, exif=options.pop("exif", exif), **options)
    return content.getvalue()


@pytest.fixture(scope="module")
def upright():
    """Decodes as one graph for all images."""
    return tf.function(decode, input_signature=[tf.TensorSpec((), tf.string)])


@pytest.mark.parametrize("value", [None, *range(1, 9)])
def test_all_orientations_as_pillow(value, upright):
    encoded = photograph(value, quality=95, subsampling=0)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))), int)
    assert int(orientation(encoded)) == (value or 1)
    found = upright(encoded).numpy().astype(int)
    assert found.shape == expected.shape and np.abs(found - expected).max() <= 16  # another decoder
    window = decode_window(tf.constant(encoded), lambda shape: (1, 2, shape[0] - 3, shape[1] - 5)).numpy()
    assert np.abs(window - found[1:-2, 2:-3]).max() <= 4


def test_little_and_big_endian_and_the_first_segment():
    for order in ("<", ">"):
        exif = Image.Exif()
        exif.endian = order
        exif[0x0112] = 6
        block = exif.tobytes()
        plain = photograph(None, exif=b"")
        segment = b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block
        assert int(orientation(plain[:2] + segment + plain[2:])) == 6, order


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe1\x00\x10Exif\0\0",
        photograph(None, exif=b"Exif\0\0II*\0\xff\xff\xff\xff"),
        photograph(None, exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"),
        photograph(9),
        photograph(0),
        photograph(6, "PNG"),
    ],
)
def test_unknown_and_damaged_values_are_upright(content):
    assert int(orientation(content)) == 1


def test_turned_images_keep_their_values():
    image = np.arange(2 * 3 * 3, dtype="uint8").reshape(2, 3, 3)
    np.testing.assert_array_equal(turn_upright(image, 6), np.rot90(image, -1))
    np.testing.assert_array_equal(turn_upright(image, 8), np.rot90(image))
    np.testing.assert_array_equal(turn_upright(image, 5), image.transpose(1, 0, 2))
