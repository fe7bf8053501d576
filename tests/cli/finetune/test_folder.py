"""What `keras-vit finetune` makes of a folder."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.recipes.recipe import Data
from keras_vit_cli.finetune.folder import open_images

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
    assert data.dataset == f"folder:{folder}" and counts == {"train": 12, "test": 3} and notes == ()


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
        assert data.dataset == f"folder:{folder}/{place}" and counts == {"train": 8, "test": 2}
        with pytest.raises(ValueError, match="laid out"):
            open_images(folder.parent, DATA)


def test_two_depths_are_one_when_most_images_are_in_it(fill, caplog):
    fill(2, "cat/more")
    assert opened(fill(6, "cat", "dog"))[1] == {"train": 10, "test": 2} and "cat/more" in caplog.text


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
    (note,) = opened(folder)[2]
    assert f"{folder}/cat/3.jpg = {folder}/dog/copy.jpg" in note and "elk" in caplog.text


def test_damaged_files_are_named_and_do_not_count(fill):
    folder = fill(10, "cat", "dog")
    (folder / "dog" / "0.jpg").write_bytes(b"no image")
    _, counts, (note,) = opened(folder)
    assert "1 of 20" in note and f"{folder}/dog/0.jpg" in note and sum(counts.values()) == 19
    for i in range(6):
        (folder / "dog" / f"{i}.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="6 of 20 .*dog/"):
        open_images(folder, DATA)


def test_images_that_cannot_be_decoded_do_not_count_in_a_small_folder(fill, monkeypatch, capsys):
    folder = fill(10, "cat", "dog")
    cut = folder / "dog" / "3.jpg"
    cut.write_bytes(cut.read_bytes()[:-60])
    assert sum(opened(folder)[1].values()) == 19 and str(cut) in capsys.readouterr().err
    monkeypatch.setattr("keras_vit_cli.finetune.folder.DECODED_BYTES", 0)
    assert sum(opened(folder)[1].values()) == 20


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
