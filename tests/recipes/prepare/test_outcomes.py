"""What is stored of an image file."""

import os

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from scenes import encoded, opened, scene

from keras_vit.recipes.prepare.outcomes import STORED, UNREADABLE, examine, fingerprint


@pytest.fixture
def outcome_of(tmp_path):
    """Function from the content of a file to its outcome and what is stored, or the error."""
    (tmp_path / "cat").mkdir()

    def examined(content):
        (tmp_path / "cat" / "1").write_bytes(content)
        outcome, _, result = examine("cat/1", str(tmp_path))
        return outcome, result["image"] if outcome == STORED else result[0]

    return examined


@pytest.mark.parametrize("mode,dtype,max_value", [("I", "int32", 65535), ("I;16B", ">u2", 65535), ("F", "float32", 1)])
def test_more_than_8_bits_become_16_and_floats_are_unreadable(mode, dtype, max_value, outcome_of):
    values = np.random.default_rng(0).uniform(0, max_value, (40, 50))
    if mode == "I":
        values[0, :2] = (-5, 70_000)
    values = values.astype(dtype)
    image = Image.frombytes(mode, (50, 40), values.tobytes()) if mode == "I;16B" else Image.fromarray(values)
    assert image.mode == mode
    outcome, result = outcome_of(encoded(image, "TIFF"))
    if mode == "F":
        assert outcome == UNREADABLE and "the pixels are floats" in result
    else:
        pixels = tf.io.decode_png(result, dtype=tf.uint16)[..., 0]
        np.testing.assert_array_equal(pixels, np.clip(values, 0, 65535))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("orientation", [1, 5, 6])
def test_images_are_turned_upright(kind, orientation, outcome_of):
    """The stored image equals Pillow's own exif_transpose, and its hash that of the upright image."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(scene(0), kind, exif=exif)
    outcome, result = outcome_of(content)
    stored, upright = opened(result), ImageOps.exif_transpose(opened(content))
    assert outcome == STORED and stored.getexif().get(0x0112, 1) == 1
    assert (result == content) == (orientation == 1 and kind != "TIFF")
    assert stored.size == upright.size
    difference = np.abs(np.asarray(stored.convert("RGB"), int) - np.asarray(upright.convert("RGB")))
    assert difference.max() == 0 if kind != "JPEG" else difference.mean() < 1.5
    different = fingerprint(opened(content))[0] ^ fingerprint(upright)[0]
    assert sum(int(word).bit_count() for word in different) <= 10


def test_files_that_would_block_are_unreadable(tmp_path):
    (tmp_path / "cat").mkdir()
    os.mkfifo(tmp_path / "cat" / "1.jpg")
    assert examine("cat/1.jpg", str(tmp_path)) == (UNREADABLE, "cat/1.jpg", ("ValueError: not a regular file",))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's, when it opens the file
def test_damaged_exif_does_not_make_an_image_unreadable(outcome_of):
    content = encoded(scene(0), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert outcome_of(content) == (STORED, content)
