"""What `keras-vit finetune` stores of files that TensorFlow does not read. Pixels: tests/images/test_decoders.py."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.data.image_folder import split_by_hash
from keras_vit.recipes.prepare.outcomes import STORED, examine
from keras_vit.recipes.recipe import Data, Optimizer, Run, Supervised
from keras_vit.recipes.recipe.file import read_run, write_recipe
from keras_vit.recipes.runs.folder import check_unchanged
from keras_vit.recipes.runs.run_data import RunData
from keras_vit_cli.commands.finetune.images import open_images
from keras_vit_cli.conversion import convert_images, converted_images

KINDS = (("tiff", "TIFF"), ("jfif", "JPEG"), ("jp2", "JPEG2000"), ("jpg", "TIFF"), ("", "PNG"), ("png", "PNG"))


@pytest.fixture
def photos(tmp_path):
    """photos/<class>: four images of each kind, a damaged one and a text."""
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            for extension, kind in KINDS:
                image = Image.fromarray(random.integers(0, 256, (9, 11, 3), "uint8"))
                image.save(tmp_path / "photos" / name / f"{kind}{number}.{extension}".rstrip("."), kind)
        (tmp_path / "photos" / name / "notes.txt").write_text("no image")
    whole = (tmp_path / "photos" / "cat" / "TIFF0.tiff").read_bytes()
    (tmp_path / "photos" / "cat" / "cut.tiff").write_bytes(whole[:200])
    return tmp_path / "photos"


def names_of(dataset, split="train+test"):
    return sorted(name.decode() for name, *_ in dataset.read(split).as_numpy_iterator())


def decoded_names(dataset):
    names = []
    for _ in decoded_images(dataset, "train+test", 64, max_corrupt=0.1, names=names):
        yield list(names)


def test_all_that_prepare_stores_is_trained_on_by_the_names_of_the_user(photos, tmp_path):
    converted, (stored,) = convert_images(photos, tmp_path / "run")
    assert "41 files" in stored
    images = open_images(photos, Data(dataset=f"folder:{photos}", converted=converted))
    files = sorted(file.relative_to(photos).as_posix() for file in photos.glob("*/*"))
    kept = [file for file in files if examine(file, str(photos))[0] == STORED]
    assert len(kept) == 48
    kept = sorted([*kept, "cat/cut.tiff"])  # damaged: skipped as PNG files are
    assert names_of(images.dataset) == [f"{photos}/{file}" for file in kept]
    read = [name for names in decoded_names(images.dataset) for name in names]
    assert len(read) == 48 and f"{photos}/cat/cut.tiff" not in read
    expected = split_by_hash([(file.partition("/")[0], file) for file in kept])
    for split, pairs in expected.items():
        assert names_of(images.dataset, split) == sorted(f"{photos}/{file}" for _, file in pairs)
    labels = {name.decode(): label for name, _, label in images.dataset.read("train+test").as_numpy_iterator()}
    assert all(label == (f"{photos}/dog/" in name) for name, label in labels.items())
    assert images.data.converted == converted


def test_files_are_stored_once_and_again_if_they_change(photos, tmp_path):
    store = tmp_path / "run" / "converted"
    convert_images(photos, tmp_path / "run")
    before = {file: file.stat() for file in store.rglob("*.*")}
    convert_images(photos, tmp_path / "run")
    assert {file: file.stat().st_ino for file in store.rglob("*.*")} == {f: s.st_ino for f, s in before.items()}
    changed = Image.new("RGB", (5, 5), (9, 8, 7))
    changed.save(photos / "cat" / "TIFF1.tiff")
    changed.save(photos / "cat" / "TIFF2.jpg", "JPEG")  # which TensorFlow reads
    changed.save(photos / "dog" / "JPEG3.jfif", "TIFF")
    convert_images(photos, tmp_path / "run")
    assert Image.open(store / "cat" / "TIFF1.tiff.png").getpixel((0, 0)) == (9, 8, 7)
    assert not (store / "cat" / "TIFF2.jpg.png").exists()
    assert [file.name for file in (store / "dog").glob("JPEG3*")] == ["JPEG3.jfif.png"]


def test_folders_in_which_the_classes_are_and_that_have_nothing_to_convert(photos, tmp_path):
    outer = tmp_path / "outer"
    outer.mkdir()
    photos.rename(outer / "inner")
    converted, _ = convert_images(outer, tmp_path / "run")
    images = open_images(outer, Data(dataset=f"folder:{outer}", converted=converted))
    assert len(names_of(images.dataset)) == 49
    assert images.data.converted == f"{tmp_path}/run/converted/inner"
    for file in outer.rglob("*.*"):
        if not file.name.startswith("PNG"):
            file.unlink()
    for file in outer.rglob("PNG[0-9]"):
        file.unlink()
    assert convert_images(outer, tmp_path / "other") == (None, []) and not (tmp_path / "other").exists()


def test_a_run_finds_its_images_after_it_was_moved(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    convert_images(photos, tmp_path / "run")
    data = Data(dataset="folder:photos", batch_size=8, validation_split=None, converted="run/converted")
    recipe = Supervised(data=data, optimizer=Optimizer(), run=Run(folder="run"))
    write_recipe(recipe, "run/recipe.json")
    files = RunData(recipe).files
    (tmp_path / "run").rename("moved")
    again = read_run("moved")
    assert again.data.converted == "moved/converted" and RunData(again).files == files
    check_unchanged("moved", RunData(again))
    assert names_of(open_dataset(again.data)) == names_of(open_dataset(replace(data, converted="moved/converted")))
    for model in ("moved", "moved/model.keras", "moved/exported/model.tflite", f"{tmp_path}/moved"):
        assert os.path.realpath(converted_images(model, f"folder:{photos}")) == f"{tmp_path}/moved/converted"
    monkeypatch.chdir("/")
    assert converted_images(f"{tmp_path}/moved", f"folder:{photos}") == f"{tmp_path}/moved/converted"
    assert converted_images("moved", "folder:moved") is converted_images("photos", "folder:photos") is None


def test_other_folders_are_converted_until_the_process_ends(photos, tmp_path):
    temporary = converted_images("cifar10/R6_Ti_4", f"folder:{photos}")
    dataset = open_dataset(Data(dataset=f"folder:{photos}", converted=temporary))
    assert len(names_of(dataset)) == 49
    assert not Path(temporary).is_relative_to(tmp_path) and len(os.listdir(photos)) == 2
    ends = f"from keras_vit_cli.conversion import converted_images; print(converted_images('x', 'folder:{photos}'))"
    ended = subprocess.run([sys.executable, "-c", ends], capture_output=True, text=True, check=True).stdout.strip()
    assert Path(ended).parent == Path(temporary).parent and not Path(ended).exists()
