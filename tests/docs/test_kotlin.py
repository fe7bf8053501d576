"""Classifier.kt and the Kotlin of docs/mobile.md compile, and prepare images as `Preprocessing` does on a Java VM."""

import json
import re
import shutil
import subprocess
import tarfile

import keras
import numpy as np
import pytest
from blocks import ROOT, blocks_of
from kotlin_compiler import COMPILER
from preprocessing_cases import LEVELS, ORIENTATION, random_cases
from randomize import randomize
from scenes import encoded, opened

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.web.page import cache_folder

pytestmark = pytest.mark.extended

SOURCES = ROOT / "tests" / "docs" / "kotlin"
# What the blocks of the page assume.
GIVEN = """context: android.content.Context, uri: android.net.Uri, frame: androidx.camera.core.ImageProxy,
    file: java.io.File, bitmap: android.graphics.Bitmap, orientation: Int"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs main.kt, compiled with Classifier.kt and the code of the page, on a folder; returns what it prints."""
    tarball = cache_folder() / COMPILER.tarball
    if not tarball.is_file() or not shutil.which("java"):
        pytest.fail(f"These tests need Java and {tarball}: run `make kotlin`.")
    folder = tmp_path_factory.mktemp("kotlin")
    with tarfile.open(tarball) as archive:
        archive.extractall(folder, filter="data")
    for package in re.split(r"\n(?=package )", (SOURCES / "stubs.txt").read_text())[1:]:
        (folder / f"{package.split()[1]}.kt").write_text(package)
    for number, block in enumerate(
        block for block in blocks_of(ROOT / "docs" / "mobile.md") if block.language == "kotlin"
    ):
        lines = block.text.splitlines()
        imports, code = ([line for line in lines if line.startswith("import ") == first] for first in (True, False))
        body = "\n".join(code)
        text = "\n".join([*imports, f"fun block{number}({GIVEN}) {{", body, "}"])
        (folder / f"block{number}.kt").write_text(text)
    sources = [*folder.glob("*.kt"), SOURCES / "main.kt", ROOT / "docs" / "Classifier.kt"]
    compiler = ["bash", folder / "package/bin/kotlinc", "-nowarn", *sources, "-d", folder / "all.jar"]
    done = subprocess.run(compiler, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    classes = f"{folder / 'all.jar'}:{folder / 'package/lib/kotlin-stdlib.jar'}"
    return lambda place: subprocess.check_output(["java", "-cp", classes, "MainKt", place], text=True)


def test_kotlin_prepares_images_as_keras_and_reads_the_file(run, tmp_path):
    model = keras_vit.VisionTransformer(
        image_size=8,
        patch_size=8,
        depth=1,
        width=8,
        mlp_dim=8,
        num_heads=2,
        num_classes=3,
        class_names=("a", "b", "\u00e4 c"),
    )
    (file,) = write_tflite(randomize(model), tmp_path / "file", ["float32"]).values()
    shutil.copy(file, tmp_path / "model.tflite")
    cases = list(random_cases(2))
    for number, (image, exif, preprocessing) in enumerate(cases):
        (tmp_path / f"{number}.rgb").write_bytes(image.tobytes())
        (tmp_path / f"{number}.txt").write_text(f"{image.width} {image.height} {exif[ORIENTATION]}")
        (tmp_path / f"{number}.json").write_text(json.dumps(preprocessing.get_config(), indent=2))
    # Without and with a GPU, which is not there. The model returns the first pixel of the bitmap: 90, 50, 20.
    assert run(tmp_path).splitlines() == ["a=90, b=50"] * 2
    for number, (image, exif, preprocessing) in enumerate(cases):
        turned = opened(encoded(image, "PNG", exif=exif))
        expected = keras.ops.convert_to_numpy(preprocessing.pixels(turned))[0]
        found = np.fromfile(tmp_path / f"{number}.pixels", "<f4").reshape(expected.shape)
        np.testing.assert_allclose(found, expected, atol=LEVELS, err_msg=str(preprocessing))
        bitmap = np.fromfile(tmp_path / f"{number}.bitmap", "uint8").reshape(*expected.shape[:2], 3)
        np.testing.assert_allclose(bitmap, np.broadcast_to(expected, bitmap.shape), atol=LEVELS + 0.2)
