"""Preprocessing equals computations in NumPy and tf.image."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

from keras_vit import Preprocessing
from keras_vit.images.decoding import resize_and_crop
from keras_vit.images.resizing import resized, size_before_crop

RANDOM = np.random.default_rng(3)
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def pixels(*shape):
    return RANDOM.integers(0, 256, (*shape, 3), dtype="uint8")


def test_images_of_the_right_size_are_only_scaled():
    batch = np.stack([np.full((4, 4, 3), value) for value in (0, 255, 51)]).astype("uint8")
    for kind in ("uint8", "int32", "float32", "float64"):
        ready = np.asarray(Preprocessing(4)(batch.astype(kind)))
        np.testing.assert_allclose(ready[:, 0, 0, 0], [-1, 1, -0.6], atol=1e-6)
    exact = (batch / 255 - IMAGENET["mean"]) / IMAGENET["std"]
    np.testing.assert_allclose(Preprocessing(4, **IMAGENET)(batch), exact, atol=1e-5)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"])
def test_interpolation_and_antialias(interpolation):
    image = pixels(40, 30)
    for antialias in (False, True):
        expected = tf.image.resize(tf.cast(image, "float32"), (40, 16), interpolation, antialias=antialias)
        expected = np.clip(expected, 0, 255) if antialias else image
        expected = tf.image.resize(tf.cast(expected, "float32"), (10, 16), interpolation, antialias=antialias)
        expected = np.clip(expected, 0, 255) / 127.5 - 1
        ready = Preprocessing((10, 16), interpolation=interpolation, antialias=antialias)(image)[0]
        np.testing.assert_allclose(ready, expected, atol=1e-5)


@pytest.mark.parametrize("interpolation,method", [("bicubic", Image.BICUBIC), ("lanczos3", Image.LANCZOS)])
def test_hard_edges_do_not_overshoot(interpolation, method):
    """As in Pillow, which rounds after each axis."""
    image = np.kron(RANDOM.integers(0, 2, (6, 6, 1), "uint8"), np.full((7, 7, 3), 255, "uint8"))  # (42, 42, 3)
    for side in (16, 64):
        preprocessing = Preprocessing(side, interpolation=interpolation, antialias=True)
        expected = np.asarray(Image.fromarray(image).resize((side, side), method), "float32")
        for found in (127.5 * (preprocessing(image)[0] + 1), resize_and_crop(image, preprocessing)):
            np.testing.assert_allclose(found, expected, atol=1.1)
            assert np.min(found) == 0 and np.max(found) == 255


# Fields, size of the image, of the model, size between resizing and cropping; sizes are (height, width).
CROPS = [
    ({"resize": "shortest", "crop_fraction": 0.875}, (300, 400), (224, 224), (256, 341)),
    ({"resize": "shortest", "crop_fraction": 0.875}, (400, 300), (224, 224), (341, 256)),
    ({"resize": "shortest", "crop_fraction": 0.875}, (256, 256), (224, 224), (256, 256)),
    ({"resize": "shortest"}, (30, 60), (224, 224), (224, 448)),
    ({"resize": "shortest"}, (100, 100), (20, 40), (40, 40)),
    ({"resize": "shortest", "crop_fraction": 0.9}, (50, 70), (224, 224), (248, 347)),
    ({"crop_fraction": 0.75}, (30, 50), (12, 15), (16, 20)),
]


@pytest.mark.parametrize("fields,image_size,size,between", CROPS)
def test_resized_and_center_cropped(fields, image_size, size, between):
    image = pixels(*image_size)
    resized = tf.image.resize(image, between).numpy() / 127.5 - 1
    top, left = ((resized_side - side) / 2 for resized_side, side in zip(between, size))
    expected = resized[round(top) : round(top) + size[0], round(left) : round(left) + size[1]]
    ready = Preprocessing(size, **fields)(image)[0]
    assert ready.shape == (*size, 3)
    np.testing.assert_allclose(ready, expected, atol=1e-5)


def test_any_image_size_and_lists_of_different_sizes():
    batch = [pixels(*size) for size in [(1, 1), (5, 100), (100, 5), (6, 7), (7, 6), (13, 11)]]
    for resize in ("squash", "shortest"):
        for fraction in (1.0, 0.95, 0.875, 0.5):
            prepare = Preprocessing((6, 7), resize=resize, crop_fraction=fraction)
            ready = prepare(batch)
            assert ready.shape == (6, 6, 7, 3)
            for one, image in zip(ready, batch):
                np.testing.assert_array_equal(one, prepare(image)[0])
    assert size_before_crop((224, 112), 0.875) == (256, 128)


ONE_PIXEL = np.arange(192).reshape(8, 8, 3) == 9
HALF = "floats between 0.5 and 0.5, which look preprocessed already"
MIXED = "floats between 0.7 and 0.7, which look preprocessed"


@pytest.mark.parametrize(
    "images,message",
    [
        (np.zeros((8, 8, 2)), r"shape \(8, 8, 2\)"),
        (np.zeros((2, 3, 8, 8), "uint8"), r"shape \(2, 3, 8, 8\)"),
        ([], r"list of shape \(\)"),
        ([[1, 2], [3, 4]], r"list of shape \(\)"),
        (np.full((8, 8, 3), 0.5, "float32"), HALF),
        (tf.fill((8, 8, 3), 0.5), HALF),
        (tf.fill((8, 8, 3), tf.constant(0.5, tf.bfloat16)), HALF),
        ([np.linspace(-1, 1, 48).reshape(4, 4, 3)], "floats between -1 and 1.* by 255"),
        (np.full((8, 8, 3), 60_000, "uint16"), "uint16 between 60000 and 60000"),
        (np.full((8, 8, 3), -1, "int32"), "int32 between -1 and -1"),
        (np.full((8, 8, 3), 60_000.0), "float32 between 60000 and 60000"),
        (np.where(ONE_PIXEL, np.nan, 100.0), "not finite"),
        (np.where(ONE_PIXEL, np.inf, 100.0), "not finite"),
        ([np.full((8, 8, 3), 200.0), np.full((8, 8, 3), 0.7)], MIXED),
        (np.stack([np.full((8, 8, 3), x) for x in (200.0, 0.7)]), MIXED),
        (np.zeros((0, 8, 8, 3), "uint8"), r"shape \(0, 8, 8, 3\)"),
        (np.zeros((0, 8, 3), "uint8"), r"shape \(0, 8, 3\)"),
    ],
)
def test_invalid_images_raise(images, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(8)(images)


def test_masks_are_black_and_white():
    mask = np.random.default_rng(0).random((8, 8)) > 0.5
    expected = np.asarray(Image.fromarray(mask).convert("RGB"), "float32")
    np.testing.assert_array_equal(Preprocessing(8).pixels(mask)[0], expected)


@pytest.mark.parametrize(
    "field,value,received",
    [
        ("image_size", 0, "0"),
        ("resize", "crop", "'crop'"),
        ("interpolation", "area", "'area'"),
        ("crop_fraction", 0.0, "0.0"),
        ("crop_fraction", 1.1, "1.1"),
        ("mean", 0.5, r"\(0.5,\)"),
        ("std", (1, 0, 1), r"\(1.0, 0.0, 1.0\)"),
        ("std", (1, np.nan, 1), r"\(1.0, nan, 1.0\)"),
        ("mean", (0.5, np.inf, 0.5), r"\(0.5, inf, 0.5\)"),
        ("mean", (123.7, 116.3, 103.5), r"\(123.7"),
        ("origin", "guess", "'guess'"),
    ],
)
def test_invalid_fields_raise(field, value, received):
    with pytest.raises(ValueError, match=f"`{field}` .*Received: {received}"):
        Preprocessing(**{"image_size": 8, field: value})


def test_preprocessing_is_saved_with_the_model(toy, tmp_path):
    prepare = Preprocessing(
        99, resize="shortest", crop_fraction=0.5, interpolation="bicubic", antialias=True, **IMAGENET
    )
    model = toy(preprocessing=prepare)
    assert model.preprocessing == prepare.at(16) and model.preprocessing.image_size == (16, 16)
    model.save(tmp_path / "x.keras")
    loaded = keras.saving.load_model(tmp_path / "x.keras")
    assert loaded.preprocessing == model.preprocessing == Preprocessing(**model.preprocessing.get_config())
    assert loaded.resized(8).preprocessing == prepare.at(8) and loaded.with_head(3).preprocessing == prepare.at(16)
    image = pixels(40, 30)
    np.testing.assert_allclose(loaded.preprocess(image), prepare.at(16)(image))
    assert toy().preprocessing == Preprocessing(16)


def test_floats_may_overshoot_as_bicubic_interpolation_does():
    image = np.full((4, 4, 3), 300.0)
    image[0, 0] = -40
    for ready in (image, np.arange(48, dtype="int64").reshape(4, 4, 3) * 5, np.ones((4, 4, 3), "int32")):
        np.testing.assert_allclose(Preprocessing(4)(ready)[0], np.clip(ready, 0, 255) / 127.5 - 1, atol=1e-5)


def test_black_float_images():
    black, gray = np.zeros((4, 4, 3), "float32"), np.full((4, 4, 3), 102.0, "float32")
    np.testing.assert_allclose(np.asarray(Preprocessing(4)([black, gray]))[:, 0, 0, 0], [-1, -0.2], atol=1e-6)
    assert np.all(np.asarray(Preprocessing(4)(black)) == -1)
    with pytest.raises(ValueError, match="floats between 0.5 and 0.5"):
        Preprocessing(4)([black, black + 0.5])


@pytest.mark.slow
def test_unknown_sizes_in_tf_data(trained_toy):
    images = [pixels(*size) for size in ((5, 100), (6, 7), (13, 11))]
    spec = tf.TensorSpec((None, None, 3), "uint8")
    dataset = tf.data.Dataset.from_generator(lambda: iter(images), output_signature=spec)
    squash, shortest = (Preprocessing((6, 7), resize=resize, crop_fraction=0.5) for resize in ("squash", "shortest"))
    with pytest.raises(ValueError, match=r"\(None, None\)\.") as refused:
        dataset.map(shortest)
    for prepare, mapped in (
        (squash, dataset.map(squash)),
        (shortest, dataset.map(lambda x: tf.py_function(shortest, [x], "float32"))),
    ):
        for ready, image in zip(mapped, images, strict=True):
            np.testing.assert_allclose(ready, prepare(image), atol=1e-6)
    # The code in the message produces batches for a model.
    advice = re.search(r"tf.ensure_shape\(.*\)", str(refused.value))[0]
    names = {"tf": tf, "preprocess": shortest}
    batches = dataset.map(lambda image: eval(advice, {**names, "image": image})).batch(2)
    model = trained_toy(image_size=(6, 7), patch_size=1)
    assert batches.element_spec.shape == (None, 6, 7, 3)
    logits = np.concatenate(list(batches.map(model)))
    np.testing.assert_allclose(logits, model(shortest(images)), atol=1e-5)


def test_origin_is_kept_and_does_not_count_when_numbers_are_compared():
    assert Preprocessing(8) == Preprocessing(8, origin="assumed") and Preprocessing(8).origin == "user"
    assert len({Preprocessing(8), Preprocessing(8, origin="file")}) == 1
    config = Preprocessing(8, origin="table").at(16).get_config()
    assert config["origin"] == "table" and Preprocessing(**config).origin == "table"
    before = {name: value for name, value in config.items() if name != "origin"}  # of a model that was saved earlier
    assert Preprocessing.from_argument(before, 16) == Preprocessing(**config)


@pytest.mark.parametrize(
    "given,known,origin",
    [
        (None, None, "assumed"),
        (None, "file", "file"),
        ({"resize": "shortest"}, "assumed", "assumed"),
        ({"mean": (0, 0, 0)}, "assumed", "assumed"),  # the deviation is still a guess
        ({"mean": (0, 0, 0)}, "file", "user"),
        ("half", "assumed", "user"),
        ({**IMAGENET, "origin": "table"}, "assumed", "table"),
    ],
)
def test_origin_of_an_argument(given, known, origin):
    found = Preprocessing.from_argument(given, 8, known and Preprocessing(9, crop_fraction=0.5, origin=known))
    assert found.origin == origin and found.image_size == (8, 8) and found.crop_fraction == (0.5 if known else 1.0)


def test_dark_images_and_other_scalings_are_no_mistake():
    photo = RANDOM.uniform(0, 255, (2, 8, 8, 3)).astype("float32")
    with pytest.raises(ValueError, match="floats between -.* look preprocessed already"):
        Preprocessing(8, **IMAGENET)(Preprocessing(8, **IMAGENET)(photo))
    Preprocessing(8, **IMAGENET)(np.where(photo > 250, 2.5, 0.0))
    Preprocessing(8, mean=(0, 0, 0), std=(1 / 255,) * 3)(np.where(photo > 250, -3.0, photo))


@pytest.mark.slow
@pytest.mark.parametrize(
    "size,interpolation,antialias",
    [
        ((40, 30), "bicubic", False),
        ((9, 21), "bicubic", True),
        ((9, 21), "lanczos5", False),
    ],
)
def test_functional_models_are_saved_and_converted(toy, tmp_path, size, interpolation, antialias):
    """Expected values: `tf.image.resize`, whose bicubic weights without antialias are from a table of 1,024.

    No pixel is near 0 or 255, where we clip what overshoots.
    """
    fields = {"resize": "shortest", "crop_fraction": 0.8, "mean": (0.4, 0.5, 0.6)}
    vit = toy(depth=1, preprocessing={**fields, "interpolation": interpolation, "antialias": antialias})
    inputs = keras.Input((*size, 3), batch_size=1)
    outputs = vit.preprocess(inputs)
    keras.Model(inputs, [outputs, vit(outputs)]).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    images = np.random.default_rng(0).uniform(80, 170, (1, *size, 3)).astype("float32")
    scale = max(20 / side for side in size)
    target = [max(20, int(side * scale + 1e-6)) for side in size]
    expected = tf.image.resize(images, target, interpolation, antialias=antialias).numpy()
    top, left = (round((side - 16) / 2) for side in target)
    expected = (expected[:, top : top + 16, left : left + 16] / 255 - (0.4, 0.5, 0.6)) / 0.5
    tolerance = 2e-3 if (interpolation, antialias) == ("bicubic", False) else 1e-5
    np.testing.assert_allclose(loaded(images)[0], expected, atol=tolerance)
    if interpolation == "bicubic":
        content = tf.lite.TFLiteConverter.from_keras_model(loaded).convert()
        interpreter = Interpreter(model_content=content)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], images)
        interpreter.invoke()
        found = [interpreter.get_tensor(output["index"]) for output in interpreter.get_output_details()]
        (pixels,) = (values for values in found if values.ndim == 4)
        np.testing.assert_allclose(pixels, expected, atol=tolerance)


@pytest.mark.parametrize("resize", ["squash", "shortest", "shortest_area"])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"])
def test_numpy_resizes_as_tensorflow(resize, interpolation):
    """TensorFlow's bicubic weights without antialias are from a table of 1,024: up to 0.3 of 255 gray levels."""
    random = np.random.default_rng(0)
    for antialias in (False, True):
        fields = Preprocessing((12, 16), resize, 0.8, interpolation, antialias)
        tolerance = 0.3 if (interpolation, antialias) == ("bicubic", False) else 2e-3
        for size in ((12, 16), (15, 20), (31, 17), (7, 9), (3, 100), (100, 90)):
            images = random.integers(0, 256, (2, *size, 3), "uint8")
            found = resized([images, images[0].astype("float32")], fields, by_products=True)
            assert type(found) is np.ndarray and found.dtype == "float32"
            expected = fields.pixels([images, images[0]])
            np.testing.assert_allclose(found, expected, atol=tolerance)
