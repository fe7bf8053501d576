"""Crops, resizing and normalization of one image, for training and for evaluation."""

import io
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA
from PIL import Image
from PIL.ImageFilter import GaussianBlur
from scenes import encoded

from keras_vit import Preprocessing
from keras_vit.images.decoding import decode
from keras_vit.recipes.data.transforms import evaluation_transform, training_transform
from keras_vit.recipes.data.windows import WINDOWS, decode_window, inception_window, torchvision_window
from keras_vit.recipes.recipe import Data

GOLDENS = np.load(DATA / "augment.npz")
BATCHES = np.load(DATA / "training_batches.npz")  # tools/training_goldens.py
# Fields (resize, crop fraction), and big_vision's preprocessing.
BIG_VISION = [
    (("shortest_area", 0.875), "resize_small256_crop224"),
    (("squash", 1.0), "resize224"),
    (("squash", 0.875), "resize256_crop224"),
]
HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
PIXELS = ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_inception_windows_depend_on_the_key_and_keep_to_their_range(color_blocks, kind):
    file, shapes = tf.constant(encoded(color_blocks, kind)), set()
    for index in range(40):
        image = decode_window(file, inception_window(tf.constant([3, index]), 0.3))
        same = decode_window(file, inception_window(tf.constant([3, index]), 0.3))
        np.testing.assert_array_equal(image, same)
        height, width, _ = image.shape
        assert height * width >= 0.28 * 48 * 64 and 0.7 < width / height < 1.4  # sides are integers
        shapes.add((height, width))
    assert len(shapes) > 30


def test_inception_windows_are_as_small_as_min_area():
    fractions = []
    for index in range(200):
        *_, height, width = inception_window(tf.constant([0, index]), 0.05)(tf.constant([480, 640, 3]))
        fractions.append(int(height) * int(width) / (480 * 640))
    assert 0.049 < min(fractions) < 0.07 and sum(fraction < 0.1 for fraction in fractions) > 3


@tf.function
def torchvision_windows(shape, min_area, count):
    def draw(index):
        return torchvision_window(tf.stack([tf.constant(0, tf.int64), index]), min_area)(shape)

    return tf.map_fn(draw, tf.range(count, dtype=tf.int64), fn_output_signature=tf.int32)


@pytest.mark.parametrize("min_area,mean,median", [(0.08, 0.433, 0.421), (0.2, 0.496, 0.482)])
def test_torchvision_windows_have_the_areas_of_torchvisions(min_area, mean, median):
    """Means and medians of a million of its draws for 375 x 500 pixels; `inception_window` has 0.372 from 0.08."""
    top, left, height, width = torchvision_windows(tf.constant([375, 500, 3]), min_area, 20_000).numpy().T
    areas = height * width / (375 * 500)
    assert areas.mean() == pytest.approx(mean, abs=0.005) and np.median(areas) == pytest.approx(median, abs=0.008)
    assert min_area - 0.005 < areas.min() < min_area + 0.005
    small = areas < 0.4  # fits at any aspect ratio
    assert np.log(width / height)[small].mean() == pytest.approx(0, abs=0.01)
    assert abs(np.log(width / height)).max() == pytest.approx(np.log(4 / 3), abs=0.01)
    for start, side, end in ((top, height, 375), (left, width, 500)):
        assert start.min() == 0 and (start + side).max() == end
        assert (start / (end - side).clip(1))[small].mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    "shape,window",
    [
        ((10, 1000), (0, 493, 10, 13)),
        ((1001, 11), (493, 0, 15, 11)),
        ((375, 500), (0, 0, 375, 500)),
        ((1, 1), (0, 0, 1, 1)),
    ],
)
def test_torchvision_windows_fall_back_to_the_center(shape, window):
    """From a whole image no other aspect ratio fits; the long side is 4 / 3 of the short one, rounded."""
    windows = torchvision_windows(tf.constant([*shape, 3]), 1.0, 20)
    np.testing.assert_array_equal(windows, np.tile(window, (20, 1)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"evaluation_resize": "shortest", "interpolation": "bicubic"},
        {"interpolation": "bicubic", "antialias": True},
        {"evaluation_resize": "shortest_area", "evaluation_crop": 0.875},
        {"evaluation_crop": 0.9, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    ],
)
def test_evaluation_transform_matches_preprocessing(changes):
    data = Data(image_size=24, **changes)
    pixels = np.random.default_rng(1).integers(0, 256, (61, 40, 3), "uint8")
    shared = {name: getattr(data, name) for name in ("interpolation", "antialias", "mean", "std")}
    preprocessing = Preprocessing(24, resize=data.evaluation_resize, crop_fraction=data.evaluation_crop, **shared)
    # In a graph, where the sides of an image are unknown.
    image = tf.function(evaluation_transform(data))(tf.constant(encoded(Image.fromarray(pixels), "PNG")))
    np.testing.assert_allclose(image, preprocessing(pixels)[0], atol=1e-4)


@pytest.mark.parametrize("fields,golden", BIG_VISION)
def test_evaluation_images_equal_those_of_big_vision(fields, golden):
    """Both paths, that of recipes and that of loaded weights; big_vision truncates to uint8, we do not."""
    photo, expected = GOLDENS["photo_png"].tobytes(), GOLDENS[f"big_vision_eval_{golden}"]
    pixels = np.asarray(Image.open(io.BytesIO(photo)))
    resize, crop = fields
    data = Data(image_size=224, evaluation_resize=resize, evaluation_crop=crop, mean=PIXELS[0], std=PIXELS[1])
    preprocessing = Preprocessing(224, resize=resize, crop_fraction=crop, mean=(0, 0, 0), std=(1, 1, 1))
    for image in (evaluation_transform(data)(tf.constant(photo)), 255 * preprocessing(pixels)[0]):
        truncated = np.asarray(image)[::4, ::4] - expected
        assert -1e-3 < truncated.min() and truncated.max() < 1.001


def test_area_means_equal_a_closed_form():
    """5 x 4 pixels to 3.2 x 4 rounded: 3 rows, each of 5 / 3 pixels; then big_vision's crop, 0 rows above."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 3), "uint8")
    rows = np.array([[3, 2, 0, 0, 0], [0, 1, 3, 1, 0], [0, 0, 0, 2, 3]]) / 5
    columns = np.array([[2, 1, 0], [0, 1, 2]]) / 3
    expected = np.einsum("ih,hwc,jw->ijc", rows, pixels / 1.0, columns)
    data = Data(image_size=2, evaluation_resize="shortest_area", mean=PIXELS[0], std=PIXELS[1])
    transform = evaluation_transform(data)
    np.testing.assert_allclose(transform(tf.constant(pixels)), expected[:2], atol=1e-3)
    preprocessing = Preprocessing(2, resize="shortest_area", mean=(0, 0, 0), std=(1, 1, 1))
    np.testing.assert_allclose(255 * preprocessing(pixels)[0], expected[:2], atol=1e-3)


def test_antialias_smooths_training_images_as_pillow_does(color_blocks):
    data = Data(image_size=16, crop="none", flip=False, interpolation="bicubic", antialias=True)
    image = training_transform(data, 0, *PIXELS)(tf.constant(0, tf.int64), tf.constant(encoded(color_blocks, "PNG")))
    expected = np.asarray(color_blocks.resize((16, 16), Image.Resampling.BICUBIC), "float64")
    assert np.abs(np.clip(image, 0, 255) - expected).max() <= 1.01  # Pillow rounds twice
    sharp = training_transform(replace(data, antialias=False), 0, *PIXELS)
    rough = sharp(tf.constant(0, tf.int64), tf.constant(encoded(color_blocks, "PNG")))
    assert np.abs(rough - expected).max() > 3


@pytest.mark.parametrize("peer,crop", [("big_vision", "inception"), ("torchvision", "torchvision")])
def test_training_images_equal_the_authors_with_their_draws(peer, crop, monkeypatch):
    """big_vision's decode_jpeg_and_inception_crop|flip_lr; MAE's transforms on the same decoded pixels."""
    file, pillow = tf.constant(BATCHES["jpeg"].tobytes()), peer == "torchvision"
    data = Data(image_size=48, crop=crop, interpolation="bicubic" if pillow else "bilinear", antialias=pillow)
    flipped = set()
    for box, expected in zip(BATCHES[f"{peer}_boxes"], BATCHES[f"{peer}_images"].astype("float32"), strict=True):
        monkeypatch.setitem(WINDOWS, crop, lambda key, min_area, box=box: lambda shape: tf.constant(box, tf.int32))
        transform = training_transform(data, 0, *PIXELS)
        images = {index: transform(tf.constant(index, tf.int64), decode(file) if pillow else file) for index in (0, 1)}
        index, image = min(images.items(), key=lambda item: float(abs(item[1] - expected).numpy().max()))
        flipped.add(index)  # of these two, one is flipped
        difference = np.clip(image, 0, 255) - expected
        if pillow:  # which rounds and clips after rows, and again after columns
            assert np.abs(difference).max() < 3.2 and np.abs(difference).mean() < 0.3
        else:  # truncated to integers
            assert -1e-3 < difference.min() and difference.max() < 1.001
    assert flipped == {0, 1}


def test_resize_crops_squares_of_the_squashed_image(color_blocks):
    data = Data(image_size=20, crop="resize", resize_size=24, flip=False)
    file, transform = tf.constant(encoded(color_blocks, "PNG")), tf.function(training_transform(data, 0, *PIXELS))
    squashed = tf.image.resize(np.asarray(color_blocks), (24, 24)).numpy()
    squares = {(y, x): squashed[y : y + 20, x : x + 20] for y in range(5) for x in range(5)}
    corners = set()
    for index in tf.range(80, dtype=tf.int64):
        image = transform(index, file).numpy()
        corners.add(next(corner for corner, square in squares.items() if np.allclose(square, image, atol=1e-3)))
    assert len(corners) > 20


@pytest.mark.parametrize("mean,std", [HALVES, ((0.5, 0.4, 0.3), (0.2, 0.3, 0.1))])
def test_pad_crops_squares_of_the_image_with_a_black_margin(color_blocks, mean, std):
    data = Data(image_size=16, crop="pad", flip=False)
    transform, pixels = tf.function(training_transform(data, 0, mean, std)), np.asarray(color_blocks)
    padded = np.pad(tf.image.resize(pixels, (16, 16)).numpy(), ((2, 2), (2, 2), (0, 0)))
    padded = (padded / 255 - mean) / std
    squares = {(y, x): padded[y : y + 16, x : x + 16] for y in range(5) for x in range(5)}
    corners = set()
    for index in tf.range(80, dtype=tf.int64):
        image = transform(index, tf.constant(encoded(color_blocks, "PNG"))).numpy()
        corners.add(next(corner for corner, square in squares.items() if np.allclose(square, image, atol=1e-5)))
    assert len(corners) > 20


@pytest.mark.parametrize(
    "crop,interpolation",
    [
        ("inception", "bicubic"),
        ("torchvision", "bicubic"),
        ("none", "bilinear"),
        ("resize", "bicubic"),
        ("pad", "bilinear"),
        ("simple", "bicubic"),
    ],
)
def test_decoded_and_encoded_images_give_the_same_crops(color_blocks, crop, interpolation):
    data = Data(image_size=16, crop=crop, resize_size=20, interpolation=interpolation)
    transform, file = training_transform(data, 5, *HALVES), tf.constant(encoded(color_blocks, "PNG"))
    for index in tf.range(4, dtype=tf.int64):
        image = transform(index, file)
        assert image.shape == (16, 16, 3)
        np.testing.assert_array_equal(image, transform(index, decode(file)))


def test_pixels_below_8_bits_are_scaled_to_255():
    file = tf.constant(encoded(Image.fromarray(np.eye(8, dtype="uint8")), "PNG"))
    data = Data(image_size=8, crop="none", flip=False)
    image = training_transform(data, 0, *PIXELS, max_value=1)(tf.constant(0, tf.int64), file)
    np.testing.assert_allclose(image[..., 0], 255 * np.eye(8), atol=1e-3)


RECTANGLE = (24, 40)


def windows_of(image, size):
    """All parts of an image (H, W, 3) of this (height, width), by their corner."""
    height, width = size
    corners = np.ndindex(image.shape[0] - height + 1, image.shape[1] - width + 1)
    return {(y, x): image[y : y + height, x : x + width] for y, x in corners}


@pytest.mark.parametrize("crop", ["pad", "resize", "simple"])
def test_rectangles_are_parts_of_the_image_that_pillow_resizes(crop):
    """The images that are cropped, by Pillow and NumPy; Pillow rounds to integers twice."""
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 70, 3), "uint8")).filter(GaussianBlur(3))
    data = Data(image_size=RECTANGLE, resize_size=(27, 42), crop=crop, flip=False, antialias=True)
    # (width, height): of "simple" 70 x 90 at 40 / 70 of its size, of which the height is 51.4.
    sides = {"pad": (40, 24), "resize": (42, 27), "simple": (40, 51)}[crop]
    resized = np.asarray(photo.resize(sides, Image.Resampling.BILINEAR), "float32")
    margins = {"pad": ((3, 3), (5, 5), (0, 0)), "simple": ((4, 4), (4, 4), (0, 0))}
    padded = np.pad(resized, margins.get(crop, 0), "reflect" if crop == "simple" else "constant")
    parts = windows_of(padded, RECTANGLE)
    transform, file = tf.function(training_transform(data, 0, *PIXELS)), tf.constant(encoded(photo, "PNG"))
    corners = set()
    for index in tf.range(60, dtype=tf.int64):
        image = transform(index, file).numpy()
        corners.add(min(parts, key=lambda corner: np.abs(parts[corner] - image).max()))
        assert min(np.abs(part - image).max() for part in parts.values()) < 1.01
    assert all(len({corner[axis] for corner in corners}) >= 3 for axis in (0, 1))


@pytest.mark.parametrize("crop", WINDOWS)
@pytest.mark.parametrize("scaled_decoding", [False, True])
def test_windows_of_rectangles_are_drawn_as_of_squares_then_resized(crop, scaled_decoding, monkeypatch):
    """torchvision's RandomResizedCrop draws area and aspect ratio of the window whatever the size of the output."""
    photo = Image.fromarray(np.random.default_rng(1).integers(0, 256, (200, 300, 3), "uint8")).filter(GaussianBlur(8))
    drawn, draw = [], WINDOWS[crop]

    def remember(key, min_area):
        def window(shape):
            drawn.append(draw(key, min_area)(shape))
            return drawn[-1]

        return window

    monkeypatch.setitem(WINDOWS, crop, remember)
    file, index = tf.constant(encoded(photo, "JPEG")), tf.constant(7, tf.int64)
    shared = {"crop": crop, "flip": False, "antialias": True, "min_crop_area": 0.4, "scaled_decoding": scaled_decoding}
    image = training_transform(Data(image_size=RECTANGLE, **shared), 3, *PIXELS)(index, file)
    training_transform(Data(image_size=32, **shared), 3, *PIXELS)(index, file)
    np.testing.assert_array_equal(*drawn)
    top, left, height, width = drawn[0].numpy().tolist()
    decoded = Image.fromarray(tf.io.decode_jpeg(file).numpy())
    expected = decoded.resize((40, 24), Image.Resampling.BILINEAR, (left, top, left + width, top + height))
    # A fraction of the size also averages pixels at the edge of the window that are outside.
    assert np.abs(image - np.asarray(expected, "float32")).max() < (8 if scaled_decoding else 2.5)


@pytest.mark.parametrize("sides", [(61, 40), (40, 61), (24, 40), (10, 90)])
@pytest.mark.parametrize("resize,crop", [("squash", 0.9), ("shortest", 1.0), ("shortest", 0.8), ("shortest_area", 0.9)])
def test_evaluation_of_rectangles_matches_pillow_and_preprocessing(sides, resize, crop):
    """timm's resize for a rectangle and its crop: scaled until it covers the size before the crop, then the center."""
    pixels = Image.fromarray(np.random.default_rng(2).integers(0, 256, (*sides, 3), "uint8")).filter(GaussianBlur(2))
    data = Data(image_size=RECTANGLE, evaluation_resize=resize, evaluation_crop=crop, antialias=True)
    image = tf.function(evaluation_transform(data))(tf.constant(encoded(pixels, "PNG")))
    shared = {name: getattr(data, name) for name in ("interpolation", "antialias", "mean", "std")}
    preprocessing = Preprocessing(RECTANGLE, resize=resize, crop_fraction=crop, **shared)
    np.testing.assert_allclose(image, preprocessing(np.asarray(pixels))[0], atol=1e-4)
    before = np.floor(np.array(RECTANGLE) / crop + 1e-6)
    scale = max(before / sides)
    target = before if resize == "squash" else [np.floor(side * scale + 1e-6) for side in sides]
    if resize != "shortest_area":
        resized = pixels.resize((int(target[1]), int(target[0])), Image.Resampling.BILINEAR)
        top, left = (round((new - side) / 2) for new, side in zip(target, RECTANGLE))
        expected = np.asarray(resized, "float32")[top : top + 24, left : left + 40]
        assert np.abs((image + 1) * 127.5 - expected).max() < 1.01
