"""EXIF orientations, against Pillow's own reader, which `keras-vit classify` uses."""

import io
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from scenes import encoded, scene

from keras_vit.images.decoding import decode, orientation
from keras_vit.images.rgb import MAX_ASPECT, as_rgb
from keras_vit.recipes.data.windows import decode_window


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


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize("mark", [b"", b"Exif\0\0"])
def test_other_formats_as_classification(tmp_path, upright, kind, mark):
    exif = Image.Exif()
    exif[0x0112] = 6
    block = mark + exif.tobytes().removeprefix(b"Exif\0\0")
    encoded = photograph(None, kind, exif=block, lossless=True)
    (tmp_path / "x").write_bytes(encoded)
    np.testing.assert_array_equal(upright(encoded), as_rgb(tmp_path / "x"))
    assert upright(encoded).shape == (40, 24, 3)


def test_exif_data_after_the_pixels_of_a_png_file(upright):
    plain, turned = photograph(None, "PNG", exif=b""), photograph(6, "PNG")
    start = turned.index(b"eXIf") - 4
    chunk = turned[start : start + 12 + int.from_bytes(turned[start : start + 4], "big")]
    assert upright(plain[:-12] + chunk + plain[-12:]).shape == (40, 24, 3)


def test_segments_before_the_exif_data(tmp_path, upright):
    """As editors write them: color profiles of several segments, XMP, comments, padding."""
    encoded = photograph(6)
    start = encoded.index(b"Exif") - 4
    segments = {
        "profile": 3 * (b"\xff\xe2\xff\xff" + b"ICC_PROFILE\0\1\1".ljust(65533, b"\xff")),
        "XMP": b"\xff\xe1\0\x23http://ns.adobe.com/xap/1.0/\0<x/>",
        "comment": b"\xff\xfe\0\x0cCREATOR: x",
        "padding": b"\xff\xff",
    }
    for name, segment in segments.items():
        for at in (2, start):
            (tmp_path / "x.jpg").write_bytes(content := encoded[:at] + segment + encoded[at:])
            assert upright(content).shape == as_rgb(tmp_path / "x.jpg").shape == (40, 24, 3), (name, at)


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
        photograph(6, "PNG")[:20],
        photograph(6, "PNG")[:8] + b"\xff\xff\xff\xffIDAT",
        photograph(6, "PNG")[:8] + b"\0\0\0\0IDAT" * 2,
        photograph(6, "WEBP")[:12] + b"VP8X\xff\xff\xff\xff",
        photograph(None, "WEBP"),
        photograph(None, exif=b"") + photograph(6),  # a second image
        photograph(6).replace(b"MM\0*", b"MM\0+"),
    ],
)
def test_unknown_and_damaged_values_are_upright(content):
    assert int(orientation(content)) == 1


def png_of_size(width, height):
    """A PNG file that states a size and has 1 pixel: nothing but its header is to be read."""
    content = bytearray(encoded(scene(0, (1, 1)), "PNG"))
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    content[29:33] = zlib.crc32(bytes(content[12:29])).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize(
    "content,readable",
    [
        (encoded(scene(0), "WEBP", save_all=True, append_images=[scene(1), scene(2)], lossless=True), True),
        (png_of_size(20_000, 20_000), False),
        (png_of_size(1, 10_000), False),
        (encoded(Image.new("RGB", (MAX_ASPECT + 1, 1)), "JPEG"), False),
        (encoded(Image.new("RGB", (MAX_ASPECT + 1, 1)), "BMP"), False),
    ],
    ids=["animated WebP", "too large", "too long", "long JPEG", "long BMP"],
)
def test_files_that_would_end_the_process(tmp_path, upright, content, readable):
    """TensorFlow writes beyond its memory for an animated WebP file; Pillow reads its first frame."""
    with pytest.raises(tf.errors.InvalidArgumentError):
        upright(content)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_window(tf.constant(content), lambda shape: (0, 0, 1, 1))
    (tmp_path / "x").write_bytes(content)
    if readable:
        np.testing.assert_array_equal(as_rgb(tmp_path / "x"), scene(0))
    else:
        with pytest.raises(ValueError, match=str(tmp_path / "x")):
            as_rgb(tmp_path / "x")


def test_the_longest_images_are_read(upright):
    assert upright(encoded(Image.new("RGB", (MAX_ASPECT, 1)), "PNG")).shape == (1, MAX_ASPECT, 3)
