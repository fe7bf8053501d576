"""What `keras-vit finetune` makes of a folder, and the settings that it chooses."""

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tyro
from PIL import Image

import keras_vit
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.configs.small_folder import Machine
from keras_vit.recipes.recipe import Architecture, Data, Supervised
from keras_vit_cli.commands.finetune import plan
from keras_vit_cli.commands.finetune.earlier_run import write_trained
from keras_vit_cli.commands.finetune.images import _examples, open_images

DATA = Data()


@pytest.fixture
def fill(tmp_path):
    """Writes images: fill(3, "train/cat", "train/dog") writes 3 into each folder."""

    def write(count, *places):
        for place in places:
            (tmp_path / place).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                pixels = np.random.default_rng([i, *place.encode()]).integers(0, 256, (9, 11, 3), "uint8")
                Image.fromarray(pixels).save(tmp_path / place / f"{i}.jpg")
        return tmp_path

    return write


def opened(folder):
    """Data, number of images by split, and notes except that of fewer than 30 images."""
    found = open_images(folder, DATA)
    counts = {split: found.count(split) for split in found.dataset.splits}
    return found.data, counts, tuple(note for note in found.notes if "fewer than 30" not in note)


def test_classes_without_splits(fill):
    folder = fill(10, "cat")
    fill(5, "dog")
    (folder / "dog" / "notes.txt").write_text("no image")
    data, counts, notes = opened(folder)
    assert (data.train_split, data.validation_split, data.test_split) == ("train", None, "test")
    assert (
        data.dataset == f"folder:{folder}" and sum(counts.values()) == 15 and 2 <= counts["test"] <= 6 and notes == ()
    )


@pytest.mark.parametrize(
    "splits,chosen",
    [
        ("train test", ("train", None, "test")),
        ("Training val", ("Training", None, "val")),
        ("train valid test", ("train", "valid", "test")),
        ("train dev extra", ("train", None, "dev")),
    ],
)
def test_splits_of_the_folder_are_used(fill, splits, chosen):
    data, counts, _ = opened(fill(3, *[f"{split}/{name}" for split in splits.split() for name in ("cat", "dog")]))
    assert (data.train_split, data.validation_split, data.test_split) == chosen
    assert set(counts) == set(splits.split())


def test_a_single_folder_in_the_folder_is_split(fill):
    for place in ("train", "photos"):
        folder = fill(5, f"{place}/outer/{place}/cat", f"{place}/outer/{place}/dog") / place / "outer"
        data, counts, _ = opened(folder)
        assert data.dataset == f"folder:{folder}/{place}" and sum(counts.values()) == 10 and counts["test"] >= 2
        with pytest.raises(ValueError, match="laid out"):
            open_images(folder.parent, DATA)


def test_two_depths_are_one_when_most_images_are_in_it(fill, caplog):
    fill(2, "cat/more")
    assert sum(opened(fill(6, "cat", "dog"))[1].values()) == 12 and "cat/more" in caplog.text


@pytest.mark.parametrize(
    "count,places,words",
    [
        (4, ["cat"], "'cat'"),
        (1, ["cat", "dog"], "single image"),
        (2, ["a/cat", "b/dog"], "a, b"),
        (2, ["a/b/c/cat"], "a/b/c/cat/0.jpg"),
        (2, ["."], "not laid out"),
        (0, [], "there are none"),
    ],
)
def test_other_folders(fill, count, places, words):
    with pytest.raises(ValueError, match=words):
        open_images(fill(count, *places), DATA)


def test_images_in_two_classes_and_empty_classes_are_named(fill, caplog):
    folder = fill(5, "cat", "dog")
    (folder / "elk").mkdir()
    (folder / "dog" / "copy.jpg").write_bytes((folder / "cat" / "3.jpg").read_bytes())
    (folder / "dog" / "again.jpg").write_bytes((folder / "dog" / "1.jpg").read_bytes())
    note = opened(folder)[2][0]
    assert f"{folder}/cat/3.jpg = {folder}/dog/copy.jpg" in note and "elk" in caplog.text


def test_copies_between_the_splits_are_named(fill):
    folder = fill(5, "train/cat", "train/dog", "test/cat", "test/dog")
    (folder / "test" / "dog" / "copy.jpg").write_bytes((folder / "train" / "cat" / "3.jpg").read_bytes())
    images = open_images(folder, DATA)
    copy = (f"{folder}/test/dog/copy.jpg", f"{folder}/train/cat/3.jpg")
    assert images.copies == (copy,) and any(
        "1 of 11 test images is a copy of a training image" in note for note in images.notes
    )


def test_test_images_that_the_weights_were_trained_on_are_copies(fill, tmp_path):
    """In splits of the folder; others would be kept in training."""
    folder, run = (
        fill(5, "photos/train/cat", "photos/train/dog", "photos/test/cat", "photos/test/dog") / "photos",
        tmp_path / "run",
    )
    run.mkdir()
    trained = [f"{folder}/train/cat/0.jpg", f"{folder}/test/cat/1.jpg", f"{folder}/test/dog/2.jpg"]
    write_trained(run, trained)
    (folder / "test" / "dog" / "2.jpg").rename(folder / "test" / "dog" / "renamed.jpg")
    images = open_images(folder, DATA, earlier=run)
    assert dict(images.copies) == {
        f"{folder}/test/cat/1.jpg": f"{folder}/test/cat/1.jpg",
        f"{folder}/test/dog/renamed.jpg": f"{folder}/test/dog/2.jpg",
    }
    assert any("2 of 10 test images" in note and str(run) in note for note in images.notes)


def test_groups_stay_together(fill):
    images = open_images(fill(20, "cat", "dog"), Data(dataset="folder:x", group="[0-9](?=.jpg)"))
    digits = [{file.decode()[-5] for file in _examples(images.dataset, split)[0]} for split in ("train", "test")]
    assert digits[0] and digits[1] and not digits[0] & digits[1]


def test_damaged_files_are_named_and_do_not_count(fill):
    folder = fill(10, "cat", "dog")
    (folder / "dog" / "0.jpg").write_bytes(b"no image")
    _, counts, (note,) = opened(folder)
    assert "1 of 20" in note and f"{folder}/dog/0.jpg" in note and sum(counts.values()) == 19
    for i in range(6):
        (folder / "dog" / f"{i}.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="6 of 20 .*dog/"):
        open_images(folder, DATA)


@pytest.mark.parametrize(
    "largest,noted,stated",
    [(4_095, "0 4095", None), (65_535, None, None), (20_000, None, None), (4_095, None, (0, 4095))],
)
def test_dark_images_of_16_bits_are_noted(tmp_path, toy, capsys, monkeypatch, largest, noted, stated):
    monkeypatch.setattr(plan, "measure", lambda *_: Machine(False, 0.01, 0.0))
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(15):
            pixels = random.integers(0, largest + 1, (16, 16), "uint16")
            pixels[0, 0] = largest
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    model = toy(num_classes=0)
    model.preprocessing = {"pixel_range": stated}
    recipe = plan.choose_recipe(open_images(tmp_path, DATA), "x.keras", model, Path("runs/x"))
    assert recipe.data.pixel_range == stated
    printed = capsys.readouterr().out
    assert ("16 gray levels of 256" in printed) == (noted is not None) == ("--pixel-range LOW HIGH" in printed)
    assert noted is None or f"such as {noted}\n" in printed


@pytest.mark.parametrize(
    "size,resize,stated,expected",
    [
        ((64, 16), "shortest", False, ("squash", 1.0)),
        ((16, 64), "shortest", False, ("squash", 1.0)),
        ((64, 16), "shortest", True, ("shortest", 0.9)),
        ((64, 48), "shortest", False, ("shortest", 0.9)),
        ((64, 16), "squash", False, ("squash", 0.9)),
    ],
)
def test_long_images_are_squashed(tmp_path, toy, capsys, monkeypatch, size, resize, stated, expected):
    monkeypatch.setattr(plan, "measure", lambda *_: Machine(False, 0.01, 0.0))
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(15):
            Image.effect_noise(size, 60 + i).convert("RGB").save(tmp_path / name / f"{i}.png")
    model = toy(num_classes=0)
    model.preprocessing = {"resize": resize, "crop_fraction": 0.9}
    recipe = plan.choose_recipe(open_images(tmp_path, DATA), "x.keras", model, Path("runs/x"), resize_is_stated=stated)
    assert (recipe.data.evaluation_resize, recipe.data.evaluation_crop) == expected
    assert ("central square of a typical image is 25%" in capsys.readouterr().out) == (expected[1] == 1.0)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("size,resize", [((8, 32), "shortest"), ((32, 8), "squash"), (None, "squash")])
def test_a_rectangle_of_the_shape_of_the_images_is_not_squashed(
    tmp_path, toy, capsys, monkeypatch, orientation, size, resize
):
    """Images of 20 x 64 pixels when upright; (8, 32) shows 80 % of them."""
    monkeypatch.setattr(plan, "measure", lambda *_: Machine(False, 0.01, 0.0))
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(15):
            stored = Image.effect_noise((64, 20) if orientation == 1 else (20, 64), 60 + i)
            stored.save(tmp_path / name / f"{i}.jpg", exif=exif)
    model = toy(num_classes=0, patch_size=4)
    model.preprocessing = {"resize": "shortest"}
    recipe = plan.choose_recipe(open_images(tmp_path, DATA), "x.keras", model, Path("runs/x"), size=size)
    assert recipe.data.evaluation_resize == resize
    assert recipe.data.input_size == (size or model.image_size)
    printed = capsys.readouterr().out
    assert ("Images are squashed" in printed) == (resize == "squash")
    assert "{} x {} pixels".format(*recipe.data.input_size) in printed
    if size:
        assert f"--data.image-size {size[0]} {size[1]}" in printed


def test_fewer_than_30_images_are_noted(fill):
    assert ["28 images" in note for note in open_images(fill(14, "cat", "dog"), DATA).notes] == [True]
    assert not open_images(fill(15, "cat", "dog"), DATA).notes


def test_a_class_of_one_image_is_noted_and_all_problems_are_reported_together(fill):
    fill(5, "cat")
    folder = fill(1, "dog")
    (note,) = opened(folder)[2]
    assert "dog" in note
    for file in folder.glob("*/*.jpg"):
        file.write_bytes(b"")
    (folder / "dog" / "0.jpg").unlink()
    with pytest.raises(ValueError, match="one class.*\n.*no images"):
        open_images(folder, DATA)


@pytest.fixture
def folder(fill):
    return open_images(fill(15, "cat", "dog"), DATA)


@pytest.mark.parametrize(
    "forward_seconds,expected",
    [
        (0.01, ["15 s"]),
        (4.0, ["34 min", "1 h 40 min", "head only", "--trainable-blocks None", " --trainable-blocks 0"]),
    ],
)
def test_duration_and_the_part_that_is_trained(folder, toy, capsys, monkeypatch, forward_seconds, expected):
    monkeypatch.setattr(plan, "measure", lambda *_: Machine(False, forward_seconds, 0.0))
    recipe = plan.choose_recipe(folder, "toy.keras", toy(num_classes=0), Path("runs/x"))
    printed = capsys.readouterr().out
    assert all(words in printed for words in expected), printed
    assert ("--trainable-blocks" in printed) == (recipe.trainable_blocks is not None)
    assert "25 to train on, 5 in the test set; 2 classes: cat, dog" in printed
    words = shlex.split(plan.train_command(recipe).replace("\\\n", ""))[3:]
    all_of_it = tyro.cli(Supervised, default=RECIPES["finetune-small"], args=[*words, "--trainable-blocks", "None"])
    defaults = RECIPES["finetune-small"].architecture
    run = replace(recipe.run, folder="runs/x-again")
    assert all_of_it == replace(recipe, architecture=defaults, trainable_blocks=None, run=run)
    assert (recipe.architecture.variant, recipe.architecture.width) == ("Ti/4", 12)  # those of the weights


@pytest.mark.parametrize(
    "build,expected",
    [
        (lambda: keras_vit.ViT("Ti/16", image_size=32, num_classes=0), Architecture("Ti/16")),
        (
            lambda: keras_vit.ViT("R6+Ti/4", image_size=32, num_classes=0, depth=1),
            Architecture("R6+Ti/4", depth=1, width=192, mlp_dim=768, num_heads=3),
        ),
        (lambda: keras_vit.BiT(stages=(1,), image_size=32, num_classes=0), plan.SMALL.architecture),
    ],
)
def test_the_recipe_states_the_architecture_of_the_weights(build, expected):
    assert plan._architecture(build()) == expected


@pytest.mark.slow
def test_timing_is_of_seconds_per_image(folder, toy):
    machine = plan.measure(toy(num_classes=0), Data(dataset=folder.data.dataset), folder.dataset, False)
    assert 0 < machine.forward_seconds < 1 and 0 < machine.decode_seconds < 1
