"""Images as users have them become RGB pixels, and these become numbers."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.images import as_size, denormalize, normalize, patch_grid
from keras_vit.images.rgb import as_rgb

EVERY = np.arange(256, dtype="uint8").reshape(1, 16, 16, 1)
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 4), dtype="uint8")
GRAY, RGB = PIXELS[..., 0], PIXELS[..., :3]
REPEATED = np.stack([GRAY] * 3, axis=-1)


@pytest.mark.parametrize(
    "run", [lambda op, x: op(x), lambda op, x: next(iter(tf.data.Dataset.from_tensors(x).map(op)))]
)
def test_normalize_and_denormalize(run):
    values = np.asarray(run(normalize, EVERY))
    assert values.dtype == np.float32 and values.min() == -1 and values.max() == 1
    np.testing.assert_allclose(values, (EVERY.astype("float32") - 127.5) / 127.5, atol=1e-6)
    np.testing.assert_array_equal(run(denormalize, values), EVERY)
    np.testing.assert_array_equal(run(denormalize, np.array([-2.0, -1.0, 0.0, 1.0, 3.0])), [0, 0, 128, 255, 255])


def test_sizes():
    assert as_size(224) == (224, 224) and as_size([48, 80]) == (48, 80)
    assert as_size(np.int64(224)) == (224, 224) and as_size((np.int32(48), 80)) == (48, 80)
    assert {type(side) for side in as_size((np.int32(48), 80))} == {int}
    assert patch_grid((48, 80), 16) == (3, 5) and patch_grid(28, (14, 7)) == (2, 4)
    for size in (0, -1, 1.5, "224", None, (1, 2, 3), (16, 0), (16.0, 16), True, (16, True), np.float32(16)):
        with pytest.raises(ValueError, match="`image_size`"):
            as_size(size)
    with pytest.raises(ValueError, match="image_size=16"):
        patch_grid(8, 16)


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


def test_image_files(tmp_path):
    Image.fromarray(RGB).save(tmp_path / "a.png")
    for path in (tmp_path / "a.png", str(tmp_path / "a.png")):
        np.testing.assert_array_equal(as_rgb(path), RGB)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate clockwise to show
    Image.fromarray(RGB).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(as_rgb(tmp_path / "a.png"), np.rot90(RGB, -1))
    (tmp_path / "a.jpg").write_text("text")
    Image.fromarray(GRAY.astype("float32")).save(tmp_path / "c.tiff")
    for name, error, word in (
        ("a.jpg", ValueError, "a.jpg"),
        ("b.jpg", FileNotFoundError, "b.jpg"),
        ("", ValueError, "folder"),
        ("c.tiff", ValueError, "c.tiff .* floats"),
    ):
        with pytest.raises(error, match=word):
            as_rgb(tmp_path / name)


def test_symbolic_tensors():
    function = tf.function(as_rgb, input_signature=[tf.TensorSpec((None, None, None, 1), tf.uint8)])
    np.testing.assert_array_equal(function(GRAY[None, ..., None]), REPEATED[None])
