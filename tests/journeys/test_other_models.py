"""Networks of other projects by the same commands as ours: training, evaluation, features, files of 8 bits."""

import json
import re

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import keras_vit
from journeys.cells import Cell
from journeys.training import COLORS, SETTINGS, check_metrics, read_test_images
from keras_vit.export.benchmark import compare
from keras_vit.recipes.configs import small_folder
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
SIZE = 32
FLOAT32 = Cell("supervised", "one", "float32", False, False, None, False)


def small_network():
    """Convolutions with what other projects' networks have: batch normalization, depthwise kernels, squeezes, SiLU."""
    inputs = keras.Input((None, None, 3))
    maps = keras.layers.Conv2D(16, 3, strides=2, use_bias=False)(keras.layers.Rescaling(1 / 127.5, -1)(inputs))
    maps = keras.layers.Activation("silu")(keras.layers.BatchNormalization(momentum=0.5)(maps))
    squeezed = keras.layers.Dense(16, "sigmoid")(keras.layers.GlobalAveragePooling2D(keepdims=True)(maps))
    return keras.Model(inputs, keras.layers.DepthwiseConv2D(3)(maps * squeezed))


def around_a_vit():
    """A functional model that holds one of our models, and resizes and scales for it."""
    inputs = keras.Input((SIZE, SIZE, 3))
    vit = keras_vit.ViT_Ti16(image_size=16, depth=1, num_classes=0)
    return keras.Model(inputs, keras.layers.Dense(8)(vit(vit.preprocess(inputs))))


def efficientnet():
    model = keras.applications.EfficientNetB0(include_top=False, weights=None, input_shape=(None, None, 3))
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.5  # of a training of 24 steps
    return model


NETWORKS = [
    small_network,
    *(pytest.param(kind, marks=pytest.mark.extended) for kind in (around_a_vit, efficientnet)),
]


def run_file(file, images):
    """Probabilities of a .tflite file in LiteRT alone, and its size in bytes."""
    interpreter = Interpreter(str(file))
    interpreter.allocate_tensors()
    (entry,), (output,) = interpreter.get_input_details(), interpreter.get_output_details()
    rows = []
    for image in images:
        interpreter.set_tensor(entry["index"], image[None].astype(entry["dtype"]))
        interpreter.invoke()
        rows.append(interpreter.get_tensor(output["index"])[0])
    scale, zero_point = output["quantization"]
    return (np.array(rows, "float32") - zero_point) * (scale or 1), file.stat().st_size


@pytest.mark.parametrize("build", NETWORKS)
def test_training_evaluation_and_files(build, journey_data, tmp_path, capsys):
    keras.utils.set_random_seed(0)
    photos = f"folder:{journey_data / 'photos'}"
    start, run = tmp_path / "start.keras", tmp_path / "run"
    keras_vit.ImageClassifier(build(), num_classes=0, preprocessing="pixels").save(start)
    options = [word for word in SETTINGS if word not in ("--data.mean", "--data.std", "0.5")]
    options += ["--preprocessing", "pixels", "--data.image-size", str(SIZE), "--data.validation-split", "test"]
    train = ["train", "digits-finetune", "--weights", str(start), "--data.dataset", photos, *options]
    assert main([*train, "--total-steps", "24", "--run.folder", str(run)]) == 0
    model = keras_vit.load(run)
    assert model.class_names == tuple(COLORS) and model.preprocessing.std == (1 / 255,) * 3
    images, labels = read_test_images(journey_data, "photos")
    check_metrics(json.loads((run / "metrics.json").read_text()), images, labels, model, FLOAT32)
    moved = [variable.numpy() for variable in model.weights if variable.path.endswith("moving_mean")]
    assert all(np.abs(values).max() > 0 for values in moved)
    capsys.readouterr()

    assert main(["evaluate", str(run), "--dataset", photos]) == 0
    inputs = np.asarray(model.preprocess(list(images)))
    logits = model.predict(inputs, verbose=0)
    right = (logits.argmax(-1) == labels.argmax(-1)).sum()
    assert f"], {right} of {len(labels)} images" in capsys.readouterr().out
    export = ["export", str(run), "--dataset", photos, "--formats", "float32", "int8", "--calibration-images", "24"]
    assert main([*export, "--output", str(tmp_path / "files"), "--keep-going"]) in (0, 1)
    probabilities = np.asarray(keras.ops.softmax(logits))
    (exact, size), (rounded, small) = (
        run_file(tmp_path / "files" / f"model-{kind}.tflite", inputs.round()) for kind in ("float32", "int8")
    )
    assert np.abs(exact - probabilities).max() < 0.02 and small < size  # pixels are rounded after the resize
    assert np.mean(rounded.argmax(-1) == probabilities.argmax(-1)) > 0.8


def test_frozen_features_and_the_head_alone(journey_data, tmp_path, capsys):
    keras.utils.set_random_seed(0)
    photos, file = journey_data / "photos", tmp_path / "model.keras"
    model = keras_vit.ImageClassifier(small_network(), num_classes=3, preprocessing="pixels", class_names=COLORS)
    model.save(file)
    assert main(["probe", str(file), f"folder:{photos}", "--neighbors", "1"]) == 0
    files = [sorted((photos / split).rglob("*.png")) for split in ("train", "test")]
    features, queries = (np.asarray(model.features(model.preprocess(list(map(str, split))))) for split in files)
    features, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (features, queries))
    nearest = (queries @ features.T).argmax(axis=1)
    right = np.mean([files[0][index].parent.name == name.parent.name for index, name in zip(nearest, files[1])])
    assert f"1 nearest neighbors: {right:.2%}" in capsys.readouterr().out
    assert main(["few-shot", str(file), f"folder:{photos}", "--shots", "8", "--seeds", "0"]) == 0
    assert float(re.search(r"8 per class: ([\d.]+)%", capsys.readouterr().out)[1]) > 60  # chance: 33
    assert main(["classify", str(photos / "test" / "red" / "0.png"), "--model", str(file), "--top", "3"]) == 0
    assert capsys.readouterr().out.count("33.3%") == 3  # the head is zeros

    options = ["--weights", str(file), "--data.dataset", f"folder:{photos}", "--data.validation-split", "None"]
    options += ["--preprocessing", "pixels", "--data.image-size", "16", "--data.batch-size", "16", "--total-steps", "4"]
    options += ["--optimizer.warmup-steps", "1"]
    head = ["--trainable-blocks", "0", "--run.folder", str(tmp_path / "head")]
    assert main(["train", "digits-finetune", *options, *head]) == 0
    trained = keras_vit.load(tmp_path / "head")
    for before, after in zip(model.backbone.weights, trained.backbone.weights, strict=True):
        np.testing.assert_array_equal(before, after)  # the statistics of batch normalization, too
    assert np.abs(trained.head.kernel).max() > 0
    assert main(["train", "digits-finetune", *options, "--trainable-blocks", "1"]) == 1
    assert "has 0 Transformer blocks" in capsys.readouterr().err
    assert (
        main(["inspect", str(file), "--images", str(photos / "test" / "red"), "--output", str(tmp_path / "a.html")])
        == 1
    )
    assert "VisionTransformer" in capsys.readouterr().err


@pytest.mark.extended
def test_finetune_exports_a_checked_file(journey_data, tmp_path, monkeypatch):
    monkeypatch.setattr(small_folder, "MOST_EPOCHS", 2)
    photos, start, run = str(journey_data / "photos"), tmp_path / "start.keras", tmp_path / "run"
    keras_vit.ImageClassifier(small_network(), num_classes=0, image_size=16, preprocessing="pixels").save(start)
    assert main(["finetune", photos, "--weights", str(start), "--output", str(run)]) == 0
    model = keras_vit.load(run)
    images, _ = read_test_images(journey_data, "photos")
    inputs = np.asarray(model.preprocess(list(images)))
    probabilities, _ = run_file(run / "exported" / "model-dynamic-int8.tflite", inputs)
    expected = keras.ops.softmax(model.predict(inputs, verbose=0))
    np.testing.assert_allclose(probabilities, expected, atol=0.03)
    (timing,) = compare([run / "exported" / "model-dynamic-int8.tflite"], num_runs=1, warmup_runs=1)
    assert timing.num_partitions == 1  # XNNPACK's own count: depthwise convolutions stay in float
