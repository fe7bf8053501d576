"""The Python of docs/tflite.md prepares images as `Preprocessing` does, and prints the probabilities of the model."""

import re

import keras
import numpy as np
import pytest
from blocks import ROOT, blocks_of
from preprocessing_cases import LEVELS, random_cases
from randomize import randomize
from scenes import encoded, opened, scene

import keras_vit
from keras_vit.export import write_tflite

CLASSES = ("cat", "dog", "fox")
pytestmark = pytest.mark.slow
[CODE] = [block.text for block in blocks_of(ROOT / "docs" / "tflite.md") if "Interpreter" in block.text]


def toy(**arguments):
    sizes = {"image_size": (16, 24), "patch_size": 8, "depth": 1, "width": 32, "mlp_dim": 32, "num_heads": 2}
    return randomize(keras_vit.VisionTransformer(**sizes, num_classes=3, **arguments), 0.3, seed=2)


@pytest.mark.parametrize(
    "name,tolerance,arguments",
    [
        ("float32", 0.1, {"preprocessing": {"crop_fraction": 0.8, "antialias": True}}),
        ("int8", 10, {"preprocessing": {"resize": "shortest", "interpolation": "bicubic"}, "channels": 1}),
    ],
)
def test_example_prints_the_probabilities_of_keras(tmp_path, monkeypatch, capsys, name, tolerance, arguments):
    model = toy(**arguments)
    (tmp_path / "cat.jpg").write_bytes(encoded(scene(3, (60, 41)), quality=95))
    expected = 100 * keras.ops.softmax(model(model.preprocess(tmp_path / "cat.jpg")))[0].numpy()
    images = np.random.default_rng(0).integers(0, 256, (20, 16, 24, model.channels)).astype("float32")
    (file,) = write_tflite(model, tmp_path, [name], images, class_names=CLASSES).values()
    monkeypatch.chdir(tmp_path)
    exec(re.sub('FILE = ".*"', f'FILE = "{file.name}"', CODE), {})
    printed = dict(line.rstrip("%").split() for line in capsys.readouterr().out.splitlines())
    np.testing.assert_allclose([float(printed[one]) for one in CLASSES], expected, atol=tolerance)


def test_example_prepares_images_as_keras():
    code = CODE[CODE.index("area, antialias =") : CODE.index("classify = Interpreter")]
    imports = "import math\nimport numpy as np\nfrom PIL import ImageOps\n"
    for image, exif, preprocessing in random_cases(0):
        image = opened(encoded(image, "PNG", exif=exif))
        exec(imports + code, settings := {"trained": preprocessing.get_config()})
        expected = keras.ops.convert_to_numpy(preprocessing.pixels(image))
        np.testing.assert_allclose(settings["preprocessed"](image), expected, atol=LEVELS, err_msg=str(preprocessing))
