"""The Python of docs/tflite.md prints probabilities of files with float32 and with uint8 outputs."""

import re

import keras
import numpy as np
import pytest
from blocks import ROOT, blocks_of
from PIL import Image

import keras_vit
from keras_vit.export import write_tflite

CLASSES = ("cat", "dog", "fox")
pytestmark = pytest.mark.slow


def test_example_prints_the_probabilities_of_keras(tmp_path, monkeypatch, capsys):
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=8, depth=1, width=32, mlp_dim=32, num_heads=2, num_classes=3
    )
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + 0.2 * random.standard_normal(weight.shape))
    images = random.integers(0, 256, (20, 16, 16, 3), "uint8")
    Image.fromarray(images[0]).save(tmp_path / "cat.jpg", quality=100)
    pixels = np.asarray(Image.open(tmp_path / "cat.jpg"), "float32")[None]
    expected = 100 * keras.ops.softmax(model(pixels / 127.5 - 1))[0].numpy()
    files = write_tflite(model, tmp_path, ["float32", "int8"], images.astype("float32"), class_names=CLASSES)
    monkeypatch.chdir(tmp_path)
    [code] = [block.text for block in blocks_of(ROOT / "docs" / "tflite.md") if "Interpreter" in block.text]
    for name, tolerance in (("float32", 0.1), ("int8", 10)):
        capsys.readouterr()
        exec(re.sub('FILE = ".*"', f'FILE = "{files[name].name}"', code), {})
        printed = dict(line.rstrip("%").split() for line in capsys.readouterr().out.splitlines())
        np.testing.assert_allclose([float(printed[one]) for one in CLASSES], expected, atol=tolerance)
