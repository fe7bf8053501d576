import io
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit import Preprocessing
from keras_vit.recipes.data.decode import decode, decode_window, evaluation_image, inception_window, scaled
from keras_vit.recipes.data.training_image import check_images, training_image
from keras_vit.recipes.recipe import Augment, Data

HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
PIXELS = ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def image():
    """(48, 64) of colors in blocks that JPEG keeps nearly as they are."""
    blocks = np.random.default_rng(0).integers(0, 256, (3, 4, 3), "uint8")
    return Image.fromarray(np.kron(blocks, np.ones((16, 16, 1), "uint8")))


@pytest.mark.parametrize(
    "kind,mode,options",
    [
        ("JPEG", "RGB", {"quality": 95}),
        ("JPEG", "RGB", {"quality": 95, "progressive": True}),
        ("JPEG", "L", {"quality": 95}),
        ("JPEG", "CMYK", {"quality": 95}),
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "L", {}),
        ("PNG", "LA", {}),
        ("PNG", "P", {}),
        ("PNG", "P", {"transparency": 0}),
        ("PNG", "1", {}),
        ("GIF", "RGB", {}),
        ("BMP", "RGB", {}),
        ("WEBP", "RGB", {"lossless": True}),
    ],
)
def test_every_kind_of_image_has_the_colors_that_pillow_sees(image, kind, mode, options):
    file = encoded(image.convert(mode), kind, **options)
    expected = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"), "int32")
    found = decode(tf.constant(file))
    assert found.dtype == tf.uint8 and np.abs(found - expected).max() <= (4 if kind == "JPEG" else 0)
    part = decode_window(tf.constant(file), lambda shape: tf.constant([5, 7, 20, 31]))
    np.testing.assert_array_equal(part, found[5:25, 7:38])


def test_16_bits_become_8():
    values = (np.arange(48 * 64).reshape(48, 64) * 21).astype("uint16")
    found = decode(tf.constant(encoded(Image.fromarray(values), "PNG")))
    np.testing.assert_array_equal(found, np.repeat((values >> 8)[..., None], 3, axis=-1))


def test_an_animation_is_its_first_frame(image):
    file = encoded(image, "GIF", save_all=True, append_images=[image.rotate(180)])
    np.testing.assert_array_equal(decode(tf.constant(file)), Image.open(io.BytesIO(file)).convert("RGB"))


@pytest.mark.parametrize("kind,mode", [("TIFF", "RGB"), ("BMP", "P")])
def test_what_tensorflow_cannot_read_is_an_error_and_not_another_image(image, kind, mode):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(tf.constant(encoded(image.convert(mode), kind)))


@pytest.mark.parametrize("file", [b"", b"no image", b"\xff\xd8\xff"])
def test_what_is_no_image_is_an_error(file):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(tf.constant(file))
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_window(tf.constant(file), inception_window(tf.constant([0, 0]), 0.05))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_inception_windows_are_as_wide_as_they_say(image, kind):
    file, shapes = tf.constant(encoded(image, kind)), set()
    for number in range(40):
        part = decode_window(file, inception_window(tf.constant([3, number]), 0.3))
        again = decode_window(file, inception_window(tf.constant([3, number]), 0.3))
        np.testing.assert_array_equal(part, again)
        height, width, _ = part.shape
        assert height * width >= 0.28 * 48 * 64 and 0.7 < width / height < 1.4  # sides are whole pixels
        shapes.add((height, width))
    assert len(shapes) > 30


def test_the_smallest_inception_windows_are_those_of_the_recipe():
    shares = []
    for number in range(200):
        *_, height, width = inception_window(tf.constant([0, number]), 0.05)(tf.constant([480, 640, 3]))
        shares.append(int(height) * int(width) / (480 * 640))
    assert 0.049 < min(shares) < 0.07 and sum(share < 0.1 for share in shares) > 3


@pytest.mark.parametrize("mean,std", [HALVES, ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), PIXELS])
def test_scaling(image, mean, std):
    expected = (np.asarray(image, "float64") / 255 - mean) / std
    np.testing.assert_allclose(scaled(tf.constant(np.asarray(image)), mean, std), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("size", [(48, 64), (61, 40), (30, 30), (24, 24)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"interpolation": "bicubic"},
        {"evaluation_resize": "shortest", "evaluation_crop": 0.875},
        {"evaluation_resize": "shortest", "interpolation": "bicubic"},
        {"evaluation_crop": 0.9, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    ],
)
def test_evaluation_prepares_images_as_the_model_does(size, changes):
    data = Data(image_size=24, **changes)
    pixels = np.random.default_rng(1).integers(0, 256, (*size, 3), "uint8")
    preprocessing = Preprocessing(
        24,
        resize=data.evaluation_resize,
        crop_fraction=data.evaluation_crop,
        interpolation=data.interpolation,
        mean=data.mean,
        std=data.std,
    )
    # In a graph, sides are known only when an image is there.
    file = tf.constant(encoded(Image.fromarray(pixels), "PNG"))
    found = tf.function(lambda file: evaluation_image(data, file))(file)
    np.testing.assert_allclose(found, preprocessing(pixels)[0], atol=1e-4)


def test_bits_resize_and_crop_takes_squares_of_the_squashed_image(image):
    data = Data(image_size=20, crop="resize", resize_size=24, flip=False)
    file, prepare = tf.constant(encoded(image, "PNG")), training_image(data, 0, *PIXELS)
    squashed = tf.image.resize(np.asarray(image), (24, 24)).numpy()
    squares = {(y, x): squashed[y : y + 20, x : x + 20] for y in range(5) for x in range(5)}
    places = set()
    for number in range(80):
        image = prepare(tf.constant(number, tf.int64), file).numpy()
        places.add(next(place for place, square in squares.items() if np.allclose(square, image, atol=1e-3)))
    assert len(places) > 20


@pytest.mark.parametrize("crop", ["inception", "none", "resize"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_decoded_and_encoded_images_are_cropped_alike(image, crop, interpolation):
    data = Data(image_size=16, crop=crop, resize_size=20, interpolation=interpolation)
    prepare, file = training_image(data, 5, *HALVES), tf.constant(encoded(image, "PNG"))
    for number in tf.range(4, dtype=tf.int64):
        image = prepare(number, file)
        assert image.shape == (16, 16, 3)
        np.testing.assert_array_equal(image, prepare(number, decode(file)))


def test_pixels_of_less_than_8_bits_are_stretched():
    file = tf.constant(encoded(Image.fromarray(np.eye(8, dtype="uint8")), "PNG"))
    data = Data(image_size=8, crop="none", flip=False)
    image = training_image(data, 0, *PIXELS, brightest=1)(tf.constant(0, tf.int64), file)
    np.testing.assert_allclose(image[..., 0], 255 * np.eye(8), atol=1e-3)


def test_fields_that_do_not_fit_are_refused():
    good = Data(crop="resize", resize_size=256, image_size=224)
    check_images(good)
    with pytest.raises(ValueError, match="resize_size=200 pixels has no crop of image_size=224"):
        check_images(replace(good, resize_size=200))
    with pytest.raises(ValueError, match="`min_crop_area` must be above 0"):
        check_images(replace(good, min_crop_area=0.0))
    with pytest.raises(ValueError, match="`erasing` is a probability"):
        check_images(replace(good, augment=Augment(erasing=1.5)))
    for name in ("mixup_alpha", "cutmix_alpha", "randaugment_layers"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 0, .* Received: -1"):
            check_images(replace(good, augment=Augment(**{name: -1})))
