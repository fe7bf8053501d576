"""Folders of images as datasets."""

import pytest
from images_on_disk import image_names, jpeg, labels_of, write_records

from keras_vit.recipes.data import class_names, count_examples, decoded_images, open_dataset
from keras_vit.recipes.recipe import Data


@pytest.fixture
def folder(tmp_path):
    for split, counts in (("train", {"ant": 30, "bee": 10, "cow": 10}), ("test", {"bee": 2, "yak": 1})):
        for class_name, count in counts.items():
            path = tmp_path / split / class_name
            path.mkdir(parents=True)
            for i in range(count):
                (path / f"{i}.JPG").write_bytes(jpeg(10 * i % 250))
            (path / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_parts_of_a_split_have_all_classes_and_make_up_the_split(folder):
    dataset = open_dataset(Data(dataset=f"folder:{folder}"))
    assert dataset.splits == {"test": 3, "train": 50} and class_names(dataset) == ["ant", "bee", "cow", "yak"]
    first, rest, whole = (labels_of(dataset, split) for split in ("train[:60%]", "train[60%:]", "train"))
    assert len(first) == count_examples(dataset, "train[:60%]") == 30
    assert first + rest == whole and set(first) == set(rest) == {0, 1, 2}
    assert labels_of(dataset, "train") == whole  # the order is fixed
    labels = dict(zip(image_names(dataset, "train+test"), labels_of(dataset, "train+test")))
    assert len(labels) == 53 and labels[f"{folder}/test/yak/0.JPG"] == 3
    images, _ = next(decoded_images(dataset, "test", 3))
    assert [image.shape for image in images] == [(9, 11, 3)] * 3


def test_other_layouts_raise(tmp_path):
    with pytest.raises(ValueError, match="not laid out as /path/<split>/<class>/<image>"):
        open_dataset(Data(dataset=f"folder:{tmp_path}"))
    for path in ("", tmp_path / "nowhere"):
        with pytest.raises(ValueError, match=f"There is no folder '{path}'. Expected a folder with <split>/<class>"):
            open_dataset(Data(dataset=f"folder:{path}"))


def test_paths_may_be_in_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert open_dataset(Data(dataset=f"folder:~/{folder.name}")).splits == {"test": 3, "train": 50}
    (folder / "records").mkdir()
    write_records(folder / "records", ("image", "label"))
    assert open_dataset(Data(dataset=f"tfrecord:~/{folder.name}/records")).splits == {"train": 7, "validation": 1}
