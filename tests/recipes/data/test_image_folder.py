"""Folders of images as datasets."""

import os

import pytest
from images_on_disk import image_names, jpeg, labels_of, write_records

from keras_vit.recipes.data import class_names, count_examples, decoded_images, open_dataset
from keras_vit.recipes.prepare import prepare
from keras_vit.recipes.prepare.source_folder import open_source
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


def test_a_folder_without_splits_has_a_fifth_of_each_class_for_tests(folder, caplog):
    whole = open_dataset(Data(dataset=f"folder:{folder}/train"))
    assert whole.splits == {"train": 40, "test": 10} and class_names(whole) == ["ant", "bee", "cow"]
    assert [labels_of(whole, "test").count(label) for label in range(3)] == [6, 2, 2]
    names = image_names(whole, "train") + image_names(whole, "test")
    assert len(set(names)) == 50 and f"{folder}/train/ant/7.JPG" in names
    assert "3 not used (names that do not end in" in caplog.text and "ant/notes.txt, bee/notes.txt" in caplog.text
    (folder / "train" / "ant.jpg").write_bytes(jpeg(1))
    caplog.clear()
    assert open_dataset(Data(dataset=f"folder:{folder}")).splits == {"test": 3, "train": 50}
    assert "1 not used (in no folder of a class): train/ant.jpg" in caplog.text


@pytest.mark.parametrize("name", ["two\nlines", "line\u2028separator"])
def test_class_name_of_several_lines_raises(folder, name):
    """labels.txt would have more names than classes."""
    (folder / "test" / "yak").rename(folder / "test" / name)
    with pytest.raises(ValueError, match="The class name .* is not one line of text. Rename .* its folder"):
        open_dataset(Data(dataset=f"folder:{folder}"))
    with pytest.raises(ValueError, match="The class name .* is not one line of text. Rename its folder"):
        open_source(str(folder))


def test_other_layouts_raise(tmp_path):
    with pytest.raises(ValueError, match="not laid out as /path/<split>/<class>/<image>.*there are none"):
        open_dataset(Data(dataset=f"folder:{tmp_path}"))
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "d").mkdir()
    (tmp_path / "a" / "b" / "c" / "d" / "1.jpg").write_bytes(jpeg(1))
    with pytest.raises(ValueError, match="the first one found is a/b/c/d/1.jpg"):
        open_dataset(Data(dataset=f"folder:{tmp_path}"))
    for path in ("", tmp_path / "nowhere"):
        with pytest.raises(ValueError, match=f"There is no folder '{path}'. Expected a folder with <class>/<image> or"):
            open_dataset(Data(dataset=f"folder:{path}"))


def test_unused_files_and_classes_of_one_split_are_named(folder, caplog):
    (folder / "train" / "ant" / "30.tiff").write_bytes(b"image")
    (folder / "train" / "elk").mkdir()
    (folder / "train" / "elk" / "1.jfif").write_bytes(jpeg(10))
    os.mkfifo(folder / "test" / "bee" / "pipe.jpg")  # opening it for reading would block
    (folder / "test" / "bee" / "link.jpg").symlink_to("nowhere.jpg")
    (folder / "test" / "bee" / "linked.jpg").symlink_to("0.JPG")
    (folder / "test" / "bee" / "dir.jpg").mkdir()
    dataset = open_dataset(Data(dataset=f"folder:{folder}"))
    # Without any image that is read, elk is no class.
    assert dataset.splits == {"test": 4, "train": 50} and class_names(dataset) == ["ant", "bee", "cow", "yak"]
    *unused, of_test, of_train = (record.getMessage() for record in caplog.records)
    assert unused == [
        f"{folder}: 1 not used (folders in the folder of a class): test/bee/dir.jpg",
        f"{folder}: 1 not used (links that lead nowhere): test/bee/link.jpg",
        f"{folder}: 7 not used (names that do not end in .jpg, .jpeg, .png, .gif, .bmp, .webp): test/bee/notes.txt, "
        "test/yak/notes.txt, train/ant/30.tiff, train/ant/notes.txt, train/bee/notes.txt and 2 more",
        f"{folder}: 1 not used (not regular files): test/bee/pipe.jpg",
    ]
    assert of_test == f"{folder}: only the split 'test' has images of the class yak"
    assert of_train == f"{folder}: only the split 'train' has images of the classes ant, cow"
    assert sorted(labels_of(dataset, "test")) == [1, 1, 1, 3]
    open_dataset(Data(dataset=f"folder:{folder}"))
    assert len(caplog.records) == 6  # not repeated


def test_names_that_are_not_utf8_are_named(folder):
    (folder / "train" / "ant" / os.fsdecode(b"b\xe9b\xe9.jpg")).write_bytes(jpeg(10))
    message = r"train/ant has the name b'b\\xe9b\\xe9.jpg', which is not UTF-8. Rename it."
    with pytest.raises(ValueError, match=message):
        open_dataset(Data(dataset=f"folder:{folder}"))
    with pytest.raises(ValueError, match=message):
        prepare(str(folder), str(folder / "records"))


def test_paths_may_be_in_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert open_dataset(Data(dataset=f"folder:~/{folder.name}")).splits == {"test": 3, "train": 50}
    (folder / "records").mkdir()
    write_records(folder / "records", ("image", "label"))
    assert open_dataset(Data(dataset=f"tfrecord:~/{folder.name}/records")).splits == {"train": 7, "validation": 1}
