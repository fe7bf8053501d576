"""What is stored of an image file."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scenes import encoded, opened, scene

from keras_vit.recipes.prepare.outcomes import STORED, UNREADABLE, examine


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "I;16", "LA"])
def test_all_modes_are_stored(mode, tmp_path):
    (tmp_path / "cat").mkdir()
    gray = np.asarray(scene(0).convert("L"))
    image = Image.fromarray(gray.astype("uint16") * 257) if mode == "I;16" else scene(0).convert(mode)
    kind = "JPEG" if mode == "CMYK" else "PNG"
    (tmp_path / "cat" / "1").write_bytes(encoded(image, kind))
    outcome, _, example = examine("cat/1", str(tmp_path))
    assert outcome == STORED and example["image"] == encoded(image, kind)
    if mode != "LA":
        (tmp_path / "cat" / "1").write_bytes(encoded(image, "TIFF"))
        outcome, _, example = examine("cat/1", str(tmp_path))
        expected = image.convert("RGB") if mode == "CMYK" else image
        assert outcome == STORED and opened(example["image"]).format == "PNG"
        np.testing.assert_array_equal(np.asarray(opened(example["image"])), np.asarray(expected))


@pytest.mark.parametrize("mode,max_value", [("I", 65535), ("I;16B", 65535), ("F", 1.0)])
def test_more_than_8_bits_become_16_and_floats_are_unreadable(mode, max_value, tmp_path):
    (tmp_path / "cat").mkdir()
    values = np.random.default_rng(0).uniform(0, max_value, (40, 50))
    values[0, :2] = (-5, 70_000) if mode == "I" else values[0, :2]
    values = values.astype({"I": "int32", "I;16B": ">u2", "F": "float32"}[mode])
    image = Image.frombytes(mode, (50, 40), values.tobytes()) if mode == "I;16B" else Image.fromarray(values)
    assert image.mode == mode
    (tmp_path / "cat" / "1").write_bytes(encoded(image, "TIFF"))
    outcome, _, result = examine("cat/1", str(tmp_path))
    if mode == "F":
        assert outcome == UNREADABLE and "the pixels are floats" in result[0]
        return
    pixels = tf.io.decode_png(result["image"], dtype=tf.uint16)[..., 0]
    np.testing.assert_array_equal(pixels, np.clip(values, 0, 65535))
