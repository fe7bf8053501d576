"""Decoding of image files against Pillow."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scenes import encoded

from keras_vit.decoding import decode
from keras_vit.recipes.data.transforms import decode_window
from keras_vit.rgb import as_rgb, reduce_to_8_bits

FILES = [
    *(("JPEG", mode, {"quality": 95}) for mode in ("RGB", "L", "CMYK")),
    ("JPEG", "RGB", {"quality": 95, "progressive": True}),
    *(("PNG", mode, {}) for mode in ("RGB", "RGBA", "L", "LA", "P", "1")),
    ("PNG", "P", {"transparency": 0}),
    *(("GIF", "RGB", {}), ("BMP", "RGB", {})),
    *(("WEBP", mode, {"lossless": True}) for mode in ("RGB", "RGBA")),
]


@pytest.mark.parametrize("kind,mode,options", FILES)
def test_all_formats_decode_as_in_pillow(color_blocks, kind, mode, options):
    file = encoded(color_blocks.convert(mode), kind, **options)
    expected = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"), "int32")
    image = decode(tf.constant(file))
    assert image.dtype == tf.uint8 and np.abs(image - expected).max() <= (4 if kind == "JPEG" else 0)
    window = decode_window(tf.constant(file), lambda shape: tf.constant([5, 7, 20, 31]))
    np.testing.assert_array_equal(window, image[5:25, 7:38])


@pytest.mark.parametrize(
    "kind,mode,options",
    [
        ("PNG", "RGBA", {}),
        ("PNG", "P", {"transparency": 3}),
        ("WEBP", "RGBA", {"lossless": True, "exact": True}),
        ("GIF", "P", {"transparency": 3}),
    ],
)
def test_transparent_pixels_are_those_of_classify(color_blocks, tmp_path, kind, mode, options):
    image = color_blocks.convert("RGB")
    image.putalpha(Image.fromarray((np.arange(48 * 64).reshape(48, 64) % 3 * 127).astype("uint8")))
    (tmp_path / "image").write_bytes(
        encoded(image.convert("RGB").quantize(8) if mode == "P" else image, kind, **options)
    )
    found = as_rgb(tmp_path / "image")
    np.testing.assert_array_equal(decode(tf.io.read_file(str(tmp_path / "image"))), found)
    if mode == "RGBA":
        np.testing.assert_array_equal(found, color_blocks)  # as if opaque


def test_cmyk_files_without_adobes_marker_are_not_inverted(color_blocks, tmp_path):
    file = encoded(color_blocks.convert("CMYK"), "JPEG", quality=95)
    start = file.index(b"\xff\xee")  # the marker, of 14 bytes and 2 before its length
    (tmp_path / "x.jpg").write_bytes(plain := file[:start] + file[start + 16 :])
    expected = Image.open(io.BytesIO(file)).point(lambda value: 255 - value).convert("RGB")
    np.testing.assert_array_equal(as_rgb(tmp_path / "x.jpg"), expected)
    np.testing.assert_array_equal(decode(tf.constant(plain), accurate=True), expected)


def test_palettes_of_several_transparent_colors(color_blocks, tmp_path):
    """Pillow warns when it converts them to RGB directly."""
    image = color_blocks.quantize(8)
    image.save(tmp_path / "x.png", transparency=b"\0\x80")
    np.testing.assert_array_equal(as_rgb(tmp_path / "x.png"), image.convert("RGB"))


@pytest.mark.parametrize("least_size,factor", [(129, 1), (128, 2), (64, 4), (20, 8), (1, 8)])
def test_scaled_decoding_is_that_of_pillow(color_blocks, least_size, factor):
    file = encoded(color_blocks.resize((512, 384), Image.Resampling.NEAREST).crop((0, 0, 401, 301)), "JPEG", quality=95)
    reference = Image.open(io.BytesIO(file))
    reference.draft("RGB", (400 // factor, 300 // factor))
    expected = np.asarray(reference, "int32")
    area = tf.constant([16, 32, 285, 256])
    window = np.int32(decode_window(tf.constant(file), lambda shape: area, least_size))
    assert window.shape == ({1: 285, 2: 143, 4: 71, 8: 36}[factor], 256 // factor, 3)
    top, left = 16 // factor, 32 // factor
    part = expected[top : top + window.shape[0], left : left + window.shape[1]]
    assert part.shape == window.shape
    assert np.abs(window - part)[2:-2, 2:-2].max() <= 4  # colors at the edge: see `decode_window`


def test_scaled_decoding_leaves_other_files(color_blocks):
    file = tf.constant(encoded(color_blocks, "PNG"))
    area = tf.constant([5, 7, 20, 31])
    np.testing.assert_array_equal(decode_window(file, lambda shape: area, 1), decode_window(file, lambda shape: area))


def test_16_bit_images_become_8_bit_and_floats_raise(color_blocks):
    values = (np.arange(48 * 64).reshape(48, 64) * 21).astype("uint16")
    file = encoded(Image.fromarray(values), "PNG")
    np.testing.assert_array_equal(decode(tf.constant(file)), np.repeat((values >> 8)[..., None], 3, axis=-1))
    reduced = reduce_to_8_bits(Image.open(io.BytesIO(file)))
    assert reduced.mode == "L"
    np.testing.assert_array_equal(reduced, values >> 8)
    assert reduce_to_8_bits(color_blocks) is color_blocks
    with pytest.raises(ValueError, match="floats"):
        reduce_to_8_bits(color_blocks.convert("F"))


def test_an_animation_is_its_first_frame(color_blocks):
    file = encoded(color_blocks, "GIF", save_all=True, append_images=[color_blocks.rotate(180)])
    np.testing.assert_array_equal(decode(tf.constant(file)), Image.open(io.BytesIO(file)).convert("RGB"))


@pytest.mark.parametrize("file", ["TIFF", "BMP", b"", b"no image", b"\xff\xd8\xff"])
def test_other_and_invalid_files_raise_errors(color_blocks, file):
    if isinstance(file, str):  # formats that TensorFlow does not read
        file = encoded(color_blocks.convert("P" if file == "BMP" else "RGB"), file)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(tf.constant(file))
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_window(tf.constant(file), lambda shape: tf.constant([0, 0, 1, 1]))
