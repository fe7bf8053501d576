"""The range of gray images with 16 bits: the same as of files that NumPy has reduced to 8 bits, by every route."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scenes import encoded

import keras_vit
from keras_vit.export import write_saved_model, write_tflite
from keras_vit.export.exported.opening import open_exported
from keras_vit.images.decoding import decode
from keras_vit.images.rgb import as_rgb
from keras_vit.recipes.data import open_dataset, training_batches
from keras_vit.recipes.data.pipeline import evaluation_arrays
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.evaluation.features import extract_features
from keras_vit.recipes.evaluation.predictions import read_predictions
from keras_vit.recipes.recipe import Augment, Data, Supervised
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.training.model import adapt_model
from keras_vit_cli.main import main

RANGES = [(0, 4095), (100, 3000), (0, 65535), (1000, 1001), (40_000, 40_255)]
CHOSEN = (100, 3000)


def reduced(values, low, high):
    """8 bits, rounded, of (H, W) integers."""
    return np.floor(np.clip((values.astype("float64") - low) / (high - low), 0, 1) * 255 + 0.5).astype("uint8")


@pytest.mark.parametrize("low,high", RANGES)
def test_pixels_of_files_and_arrays(low, high, tmp_path):
    random = np.random.default_rng(0)
    values = random.integers(max(0, low - 300), min(65_535, high + 300) + 1, (23, 31), "uint16")
    values[0, :3] = low, high, (low + high) // 2
    expected = np.repeat(reduced(values, low, high)[..., None], 3, -1)
    for kind in ("PNG", "TIFF"):
        content = encoded(Image.fromarray(values), kind)
        (tmp_path / kind).write_bytes(content)
        np.testing.assert_array_equal(as_rgb(tmp_path / kind, (low, high)), expected)
        if kind == "PNG":
            decoded = tf.function(lambda file: decode(file, pixel_range=(low, high)))(tf.constant(content))
            np.testing.assert_array_equal(decoded, expected)
    preprocess = keras_vit.Preprocessing((23, 31), pixel_range=(low, high))
    np.testing.assert_allclose(preprocess.pixels(values), expected[None], atol=1e-3)
    np.testing.assert_allclose(preprocess.pixels(tf.constant(values[None, ..., None])), expected[None], atol=1e-3)
    for array in (expected, expected.astype("float32"), values.astype("int64") % 256):  # of 8 bits already
        np.testing.assert_allclose(preprocess.pixels(array), replace(preprocess, pixel_range=None).pixels(array))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """deep/<class> with images of 16 bits, one of 8 bits and a photograph; flat/<class> with the same in 8 bits."""
    folder, random = tmp_path_factory.mktemp("range"), np.random.default_rng(0)
    for name in ("across", "down"):
        for place in ("deep", "flat"):
            (folder / place / name).mkdir(parents=True)
        for number in range(8):
            slope = 140 * np.mgrid[:20, :20][int(name == "across")]
            values = (slope + random.integers(0, 600, (20, 20))).astype("uint16")
            Image.fromarray(values).save(folder / "deep" / name / f"{number}.png")
            Image.fromarray(reduced(values, *CHOSEN)).save(folder / "flat" / name / f"{number}.png")
        photo = Image.fromarray(random.integers(0, 256, (20, 20, 3), "uint8"))
        for place in ("deep", "flat"):
            photo.save(folder / place / name / "photo.png")
            photo.convert("L").save(folder / place / name / "gray.png")
    return folder


def data_of(folder, place, **more):
    return Data(f"folder:{folder / place}", image_size=8, batch_size=4, validation_split=None, **more)


@pytest.mark.parametrize(
    "more", [{"crop": "inception"}, {"crop": "none", "cache": True}, {"augment": Augment(randaugment_layers=2)}]
)
def test_training_and_evaluation_batches(folders, more):
    deep, flat = data_of(folders, "deep", pixel_range=CHOSEN, **more), data_of(folders, "flat", **more)
    batches = [training_batches(data, open_dataset(data), seed=1).take(6).as_numpy_iterator() for data in (deep, flat)]
    for (images, labels), (expected, expected_labels) in zip(*batches, strict=True):
        np.testing.assert_array_equal(images, expected)
        np.testing.assert_array_equal(labels, expected_labels)
    images, expected, dark = (
        evaluation_arrays(data, open_dataset(data), "train")[0]
        for data in (deep, flat, replace(deep, pixel_range=None))
    )
    np.testing.assert_array_equal(images, expected)
    assert np.abs(dark - expected).max() > 0.5


@pytest.mark.slow
def test_a_model_and_its_exports(folders, trained_toy, tmp_path):
    """Probabilities of the files of 16 bits equal those of the files of 8 bits, with one model."""
    model = trained_toy(image_size=8, num_classes=2, depth=1, class_names=["across", "down"])
    model.preprocessing = {"pixel_range": CHOSEN, "origin": "user"}
    model.save(tmp_path / "model.keras")
    model = keras_vit.load(tmp_path / "model.keras")
    assert model.preprocessing.pixel_range == CHOSEN
    deep, flat = (sorted(map(str, (folders / place).rglob("*.png"))) for place in ("deep", "flat"))

    def probabilities(classifier, files):
        return [dict(best)["across"] for best in classifier.classify(files, 2)]

    expected = probabilities(model, flat)
    assert np.ptp(expected) > 1e-3
    assert probabilities(model, deep) == pytest.approx(expected, abs=1e-6)
    file = write_tflite(model, tmp_path, ["float32"])["float32"]
    assert probabilities(open_exported(file), deep) == pytest.approx(expected, abs=1e-4)
    saved = tf.saved_model.load(write_saved_model(model, tmp_path / "saved"))
    served = saved.signatures["serve_bytes"](tf.constant([Path(name).read_bytes() for name in deep]))
    np.testing.assert_allclose(served["probabilities"][:, 0], expected, atol=1e-5)
    tables = []
    for place in ("deep", "flat"):
        dataset = open_dataset(Data(f"folder:{folders / place}"))
        evaluate_classifier(model, dataset, "train+test", predictions=tmp_path / f"{place}.csv")
        tables.append(read_predictions(tmp_path / f"{place}.csv").probabilities)
        tables.append(extract_features(model, dataset, "train+test")[0])
    np.testing.assert_allclose(tables[0], tables[2], atol=1e-6)
    np.testing.assert_allclose(tables[1], tables[3], atol=1e-5)


@pytest.mark.slow
def test_finetune_states_the_range_in_all_that_it_writes(folders, trained_toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trained_toy(image_size=8, depth=1).save("start.keras")
    words = ["--weights", "start.keras", "--pixel-range", *map(str, CHOSEN)]
    assert main(["finetune", str(folders / "deep"), *words]) == 0
    assert "have 16 bits" not in capsys.readouterr().out
    model = keras_vit.load("runs/deep")
    assert model.preprocessing.pixel_range == CHOSEN
    assert open_exported("runs/deep/exported/model-dynamic-int8.tflite").preprocessing.pixel_range == CHOSEN
    rows = read_predictions(tmp_path / "runs" / "deep" / "predictions.csv")
    flat = [file.replace("/deep/", "/flat/") for file in rows.files]
    names = list(rows.class_names)
    expected = [[dict(best)[name] for name in names] for best in model.classify(flat, 2)]
    np.testing.assert_allclose(rows.probabilities, expected, atol=1e-5)
    assert main(["finetune", str(folders / "deep"), "--pixel-range", "0", "4095"]) == 1
    assert "pixel_range 0 4095" in capsys.readouterr().err


@pytest.mark.parametrize("pixel_range", [(5, 5), (9, 2), (-1, 8), (0, 65_536), (0, 1.5), 4095, (1, 2, 3)])
def test_other_ranges_are_errors(pixel_range):
    with pytest.raises(ValueError, match="pixel_range"):
        keras_vit.Preprocessing(8, pixel_range=pixel_range)
    with pytest.raises(RecipeError) as raised:
        Data(pixel_range=pixel_range)
    assert list(raised.value.received) == ["data.pixel_range"]


def test_weights_keep_their_range(toy):
    model = toy(num_classes=0)
    model.preprocessing = {"pixel_range": CHOSEN}
    with pytest.raises(RecipeError) as raised:
        adapt_model(model, Supervised(data=Data(image_size=8)), 3)
    assert raised.value.use == ({"data.pixel_range": CHOSEN},)
