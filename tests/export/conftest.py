"""A small classifier, images that it classifies correctly, and its exported files."""

import os

import keras
import numpy as np
import pytest
from filelock import FileLock

import keras_vit
from keras_vit.export import FORMATS, write_onnx, write_saved_model, write_tflite


@pytest.fixture(scope="session")
def inputs():
    """(60, 16, 16, 3) float32 in [-1, 1] and labels: the class is the quadrant that is bright."""
    random = np.random.default_rng(0)
    images = random.uniform(-1, 0, (60, 16, 16, 3)).astype("float32")
    labels = np.arange(60) % 4
    for image, label in zip(images, labels):
        row, column = divmod(label, 2)
        image[8 * row : 8 * row + 8, 8 * column : 8 * column + 8] += 1
    return images, labels


@pytest.fixture(scope="session")
def images(inputs):
    """The same rounded to [0, 255], float32."""
    return np.round((inputs[0] + 1) * 127.5)


@pytest.fixture(scope="session")
def classifier(inputs):
    """A random encoder, and a head fitted to its features by least squares, which is faster than training."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=4, depth=2, width=32, mlp_dim=64, num_heads=2, num_classes=4, dropout=0.1
    )
    random, (images, labels) = np.random.default_rng(7), inputs
    for weight in model.weights:
        scale = 1.0 if "positions" in weight.path else 0.1  # positions distinguish the quadrants
        weight.assign(weight + scale * random.standard_normal(weight.shape))
    features = np.pad(model.features(images), ((0, 0), (0, 1)), constant_values=1)
    solution, *_ = np.linalg.lstsq(features, 8 * np.eye(4)[labels] - 4, rcond=1e-2)
    model.head.set_weights([solution[:-1], solution[-1]])
    assert (np.argmax(model(images), axis=-1) == labels).all()
    return model


@pytest.fixture(scope="session")
def artifacts(classifier, images, tmp_path_factory):
    """Format -> file, in every format. Processes of pytest-xdist share them: the first one exports."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= "exports"
    with FileLock(f"{folder}.lock"):
        if not (folder / "saved_model").exists():
            write_tflite(classifier, folder, FORMATS, images, class_names=["one", "two", "three", "four"])
            classifier.save(folder / "model.keras")
            write_onnx(classifier, folder / "model.onnx")
            write_saved_model(classifier, folder / "saved_model")
    others = {"keras": "model.keras", "onnx": "model.onnx", "saved_model": "saved_model"}
    return {name: folder / file for name, file in {**{f: f"model-{f}.tflite" for f in FORMATS}, **others}.items()}
