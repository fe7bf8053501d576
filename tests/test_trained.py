"""The models inside the package: found by name, intact, and as accurate as their cards say."""

import hashlib
import io
import re
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.class_names import own_class_names
from keras_vit.trained import FOLDER, local_folder
from keras_vit.weights import packaged_names

CIFAR10 = "cifar10/R6_Ti_4"
TEST_IMAGES = Path(__file__).parents[2] / "shared" / "data" / "cifar10_test.zip"


def test_names():
    assert CIFAR10 in packaged_names()
    with pytest.raises(ValueError, match=f"Unknown published checkpoint 'cifar10/Ti_16'. Did you mean .*{CIFAR10}"):
        keras_vit.load("cifar10/Ti_16")


def test_local_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert local_folder(CIFAR10) == str(FOLDER / CIFAR10)
    Path(CIFAR10).mkdir(parents=True)
    assert local_folder(CIFAR10) == CIFAR10


@pytest.mark.parametrize("name", packaged_names())
def test_files_are_those_of_the_card(name):
    file, card = FOLDER / name / "model.keras", (FOLDER / name / "model_card.md").read_text()
    assert f"| sha256 of model.keras | {hashlib.sha256(file.read_bytes()).hexdigest()} |" in card
    assert f'keras_vit.load("{name}")' in card and file.stat().st_size < 6e6
    with zipfile.ZipFile(file) as content:  # 2 bytes a weight
        assert content.getinfo("model.weights.h5").file_size < 2.5 * keras_vit.load(name).count_params()


@pytest.mark.slow
def test_precision_is_the_global_one():
    model = keras_vit.load(CIFAR10)
    assert model.dtype_policy.name == "float32" and model.head.kernel.dtype == "float32"
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        assert keras_vit.load(CIFAR10).dtype_policy.name == "mixed_bfloat16"
        assert keras_vit.load(CIFAR10, dtype="float32").dtype_policy.name == "float32"
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.slow
@pytest.mark.skipif(not TEST_IMAGES.is_file(), reason=f"CIFAR-10's test images are not in {TEST_IMAGES}")
def test_accuracy_is_that_of_the_card():
    from PIL import Image

    model, names = keras_vit.load(CIFAR10), own_class_names(FOLDER / CIFAR10, 10)
    with zipfile.ZipFile(TEST_IMAGES) as content:
        files = sorted(name for name in content.namelist() if name.endswith(".jpg"))[::20]
        images = [np.asarray(Image.open(io.BytesIO(content.read(name)))) for name in files]
    labels = np.array([names.index(Path(name).parent.name) for name in files])
    found = np.mean(model.predict_on_batch(model.preprocess(images)).argmax(-1) == labels)
    stated = float(re.search(r"\| top1 \| ([\d.]+) \|", (FOLDER / CIFAR10 / "model_card.md").read_text())[1])
    assert len(labels) >= 500 and abs(found - stated) < 4 * (stated * (1 - stated) / len(labels)) ** 0.5
