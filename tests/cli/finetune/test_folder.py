"""What `keras-vit finetune` makes of a folder."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.recipes.recipe import Data
from keras_vit_cli.finetune.folder import open_images

DATA = Data()


@pytest.fixture
def fill(tmp_path):
    """Writes images: fill("train/cat", 3)."""

    def write(place, count):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            pixels = np.random.default_rng([i, *place.encode()]).integers(0, 256, (9, 11, 3), "uint8")
            Image.fromarray(pixels).save(tmp_path / place / f"{i}.jpg")
        return tmp_path

    return write


def opened(folder):
    found = open_images(folder, DATA)
    counts = {split: found.count(split) for split in found.dataset.splits}
    return found.data, counts, tuple(note for note in found.notes if "With fewer than 30" not in note)


def test_classes_without_splits(fill):
    fill("cat", 10)
    folder = fill("dog", 5)
    (folder / "dog" / "notes.txt").write_text("no image")
    data, counts, notes = opened(folder)
    assert (data.dataset, data.train_split, data.validation_split, data.test_split) == (
        f"folder:{folder}",
        "train",
        None,
        "test",
    )
    assert counts == {"train": 12, "test": 3} and notes == ()


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
    for split in splits.split():
        fill(f"{split}/cat", 3)
        folder = fill(f"{split}/dog", 3)
    data, counts, _ = opened(folder)
    assert (data.train_split, data.validation_split, data.test_split) == chosen
    assert set(counts) == set(splits.split())


@pytest.mark.parametrize("place", ["train", "photos", "data/photos"])
def test_a_single_folder_in_the_folder_is_split(fill, place):
    fill(f"{place}/cat", 5)
    folder = fill(f"{place}/dog", 5)
    if place == "data/photos":
        with pytest.raises(ValueError, match="laid out"):
            open_images(folder, DATA)
        folder = folder / "data"
        place = "photos"
    data, counts, _ = opened(folder)
    assert data.dataset == f"folder:{folder}/{place}" and counts == {"train": 8, "test": 2}


def test_two_depths_are_one_when_most_images_are_in_it(fill, caplog):
    fill("cat", 6)
    fill("cat/more", 2)
    folder = fill("dog", 6)
    _, counts, _ = opened(folder)
    assert counts == {"train": 10, "test": 2}
    assert "1 not used (folders in the folder of a class): cat/more" in caplog.text


@pytest.mark.parametrize(
    "places,message",
    [
        ([("cat", 4)], "has one class, 'cat'. Expected a folder of images for each of several"),
        ([("cat", 1), ("dog", 1)], "Each class of .* has a single image, so that none is left to evaluate on"),
        ([("a/cat", 2), ("b/dog", 2)], "has folders in its folders a, b. Expected .*train/<class>/<image>"),
        ([("a/b/c/cat", 2)], "the first one found is a/b/c/cat/0.jpg"),
        ([(".", 2)], "not laid out"),
    ],
)
def test_other_folders(fill, places, message):
    for place, count in places:
        folder = fill(place, count)
    with pytest.raises(ValueError, match=message):
        open_images(folder, DATA)


def test_empty_and_missing_folders(tmp_path):
    with pytest.raises(ValueError, match="not laid out.*there are none"):
        open_images(tmp_path, DATA)
    with pytest.raises(ValueError, match="There is no folder"):
        open_images(tmp_path / "nowhere", DATA)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file' is a file. Expected a folder with <class>/<image> or"):
        open_images(tmp_path / "file", DATA)


def test_images_in_two_classes_and_empty_classes_are_named(fill, caplog):
    fill("cat", 5)
    folder = fill("dog", 5)
    (folder / "elk").mkdir()
    (folder / "dog" / "copy.jpg").write_bytes((folder / "cat" / "3.jpg").read_bytes())
    (folder / "dog" / "again.jpg").write_bytes((folder / "dog" / "1.jpg").read_bytes())
    assert opened(folder)[2] == (f"1 image is in two classes: {folder}/cat/3.jpg = {folder}/dog/copy.jpg",)
    assert "1 not used (empty folders): elk" in caplog.text


def test_damaged_files_are_named_and_do_not_count(fill):
    fill("cat", 10)
    folder = fill("dog", 9)
    (folder / "dog" / "bad.jpg").write_bytes(b"no image")
    _, counts, notes = opened(folder)
    assert notes == (f"1 of 20 files is no image; skipped: {folder}/dog/bad.jpg",)
    assert sum(counts.values()) == 19
    for i in range(5):
        (folder / "dog" / f"bad{i}.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="6 of 25 files are no images. Remove them: .*bad"):
        open_images(folder, DATA)


def test_images_that_cannot_be_decoded_do_not_count_in_a_small_folder(fill, monkeypatch, capsys):
    fill("cat", 10)
    folder = fill("dog", 10)
    cut = folder / "dog" / "3.jpg"
    cut.write_bytes(cut.read_bytes()[:-60])
    assert sum(opened(folder)[1].values()) == 19
    assert capsys.readouterr().err == f"Skipping undecodable images: {cut}\n"
    monkeypatch.setattr("keras_vit_cli.finetune.folder.DECODED_BYTES", 0)
    assert sum(opened(folder)[1].values()) == 20


@pytest.mark.parametrize("each,noted", [(14, True), (15, False)])
def test_fewer_than_30_images_are_noted(fill, each, noted):
    fill("cat", each)
    notes = open_images(fill("dog", each), DATA).notes
    assert notes == ((FEW,) if noted else ())


FEW = (
    "The folder has 28 images. With fewer than 30, the accuracy and the comparison of the exported file with Keras, on "
    "6 of them, say little. Add images."
)


def test_a_class_of_one_image_is_noted_and_all_problems_are_reported_together(fill):
    fill("cat", 5)
    folder = fill("dog", 1)
    assert opened(folder)[2] == ("At most one image to train on: dog. Add images of these classes.",)
    for file in folder.glob("*/*.jpg"):
        file.write_bytes(b"")
    (folder / "dog" / "0.jpg").unlink()
    with pytest.raises(ValueError, match="one class.*\n.*no images"):
        open_images(folder, DATA)
