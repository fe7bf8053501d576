"""Folders of images as datasets: layouts, splits, files that are not used."""

import hashlib
import os
import re
from pathlib import Path

import pytest
from images_on_disk import image_names, jpeg, labels_of, write_records

from keras_vit.recipes.data import count_examples, decoded_images, open_dataset
from keras_vit.recipes.data.folder_layout import check_layout
from keras_vit.recipes.data.groups import groups_of, read_table
from keras_vit.recipes.data.image_dataset import count_nonempty
from keras_vit.recipes.data.image_folder import split_by_hash
from keras_vit.recipes.prepare import prepare
from keras_vit.recipes.prepare.source import open_source
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.recipe.errors import RecipeError


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


def opened(path):
    return open_dataset(Data(dataset=f"folder:{path}"))


@pytest.mark.parametrize(
    "files,error",
    [
        (["cat/1.JPG", "dog/1.png"], None),
        (["train/cat/1.jpg", "test/dog/1.jpg"], None),
        (["cat/1.jpg", "2.jpg", "notes/1.txt"], None),
        ([], "none"),
        (["cat/1.txt", "cat/._1.jpg"], "none"),
        ([".hidden/1.jpg"], ".hidden/1.jpg"),
        (["2.jpg", "1.jpg"], "found is 1.jpg.*image,label.* csv:"),
        (["cat/1.txt", "cat/1.HEIC"], "cat/1.HEIC.* JPEG"),
        (["a/b/c/1.jpg"], "a/b/c/1.jpg"),
    ],
)
def test_layouts(tmp_path, files, error):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    if error is None:
        check_layout(str(tmp_path))
    else:
        for check in (check_layout, opened):
            with pytest.raises(ValueError, match=error):
                check(str(tmp_path))


def test_links_to_folders_are_folders(tmp_path):
    for name in ("elsewhere/cat", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "elsewhere" / "cat" / "1.jpg").touch()
    (tmp_path / "data" / "cat").symlink_to(tmp_path / "elsewhere" / "cat")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data")
    check_layout(f"{tmp_path}/data")


def test_parts_of_a_split_have_all_classes_and_make_up_the_split(folder):
    dataset = opened(folder)
    assert dataset.splits == {"test": 3, "train": 50} and list(dataset.class_names) == ["ant", "bee", "cow", "yak"]
    first, rest, whole = (labels_of(dataset, split) for split in ("train[:60%]", "train[60%:]", "train"))
    assert len(first) == count_examples(dataset, "train[:60%]") == 30
    assert first + rest == whole and set(first) == set(rest) == {0, 1, 2}
    assert labels_of(dataset, "train") == whole  # the order is fixed
    labels = dict(zip(image_names(dataset, "train+test"), labels_of(dataset, "train+test")))
    assert len(labels) == 53 and labels[f"{folder}/test/yak/0.JPG"] == 3
    images, _ = next(decoded_images(dataset, "test", 3))
    assert [image.shape for image in images] == [(9, 11, 3)] * 3


def test_a_folder_without_splits_has_images_of_each_class_for_tests(folder, caplog):
    whole = opened(folder / "train")
    assert sum(whole.splits.values()) == 50 and list(whole.class_names) == ["ant", "bee", "cow"]
    assert {labels_of(whole, split).count(label) > 0 for label in range(3) for split in whole.splits} == {True}
    names = image_names(whole, "train") + image_names(whole, "test")
    assert len(set(names)) == 50 and f"{folder}/train/ant/7.JPG" in names
    assert "3 not used" in caplog.text and "ant/notes.txt, bee/notes.txt" in caplog.text
    (folder / "train" / "ant.jpg").write_bytes(jpeg(1))
    caplog.clear()
    assert opened(folder).splits == {"test": 3, "train": 50}
    assert "1 not used" in caplog.text and "train/ant.jpg" in caplog.text


def images(**counts):
    return [(name, f"{name}/{i}.jpg") for name, count in counts.items() for i in range(count)]


def test_a_hash_of_the_name_decides_alone():
    given = images(ant=1000, bee=10, cow=3, doe=2, elk=1)
    splits = split_by_hash(given)
    counts = [[label for label, _ in splits["test"]].count(name) for name in ("ant", "bee", "cow", "doe", "elk")]
    assert sorted(splits["train"] + splits["test"]) == sorted(given)
    # SHA-256 of the names: about a fifth of 1,000, and at least one of a class of two.
    below = [file for _, file in given if hashlib.sha256(file.encode()).hexdigest() < "33333333"]
    assert counts[0] == sum(file.startswith("ant") for file in below) and 160 < counts[0] < 240
    assert all(1 <= count < total for count, total in zip(counts[1:4], (10, 3, 2))) and counts[4] == 0
    # Nothing changes sides when images come or go.
    before, more = set(splits["test"]), split_by_hash(images(ant=1500)[::-1])
    assert {image for image in before if image[0] == "ant"} == set(more["test"]) & set(images(ant=1000))


def test_groups_stay_together():
    given = [(name, f"{name}/p{patient}-{view}.jpg") for name in "ab" for patient in range(50) for view in range(3)]
    splits = split_by_hash(given, {file: re.search("p[0-9]+", file)[0] for _, file in given})
    sides = [{re.search("p[0-9]+", file)[0] for _, file in splits[name]} for name in ("train", "test")]
    assert not sides[0] & sides[1] and 4 <= len(sides[1]) <= 16 and len(splits["test"]) == 6 * len(sides[1])


def test_groups_of_a_folder(folder):
    def opened_with(path, group):
        return open_dataset(Data(f"folder:{path}", group=group))

    whole = opened_with(folder / "train", r"/(\d)")  # the first digit of the file's name
    digits = [{Path(name).stem[0] for name in image_names(whole, split)} for split in ("train", "test")]
    assert digits[0] and digits[1] and not digits[0] & digits[1]
    one = opened_with(folder / "train", r"(\.)")  # all images
    assert one.splits == {"train": 50, "test": 0} and len(labels_of(one, "train+test")) == 50
    with pytest.raises(ValueError, match="'test' .* has no images"):
        count_nonempty(one, "test")
    with pytest.raises(ValueError, match="50 of 50 files .* 'patient'"):
        opened_with(folder / "train", "patient")
    with pytest.raises(ValueError, match="groups of .*'train' and 'test'|groups of .*'test' and 'train'"):
        opened_with(folder, r"/(\d)")
    for wrong in ({"group": "("}, {"dataset": "digits", "group": "x"}):
        with pytest.raises(RecipeError):
            Data(**{"dataset": f"folder:{folder}", **wrong})


@pytest.mark.parametrize("name", ["two\nlines", "line\u2028separator"])
def test_class_name_of_several_lines_raises(folder, name):
    """labels.txt would have more names than classes."""
    (folder / "test" / "yak").rename(folder / "test" / name)
    for read in (opened, open_source):
        with pytest.raises(ValueError, match="class name"):
            read(str(folder))


@pytest.mark.parametrize("path", ["", "/no/where"])
def test_folders_that_do_not_exist_raise(path):
    with pytest.raises(ValueError, match=f"'{path}'"):
        opened(path)


def test_unused_files_and_classes_of_one_split_are_named(folder, caplog):
    (folder / "train" / "ant" / "30.tiff").write_bytes(b"image")
    (folder / "train" / "elk").mkdir()
    (folder / "train" / "elk" / "1.jfif").write_bytes(jpeg(10))
    (folder / "train" / "ant" / "31.heic").touch()
    os.mkfifo(folder / "test" / "bee" / "pipe.jpg")  # opening it for reading would block
    (folder / "test" / "bee" / "link.jpg").symlink_to("nowhere.jpg")
    (folder / "test" / "bee" / "linked.jpg").symlink_to("0.JPG")
    (folder / "test" / "bee" / "dir.jpg").mkdir()
    dataset = opened(folder)
    # Without any image that is read, elk is no class.
    assert dataset.splits == {"test": 4, "train": 50} and list(dataset.class_names) == ["ant", "bee", "cow", "yak"]
    *unused, of_test, of_train = messages = [record.getMessage() for record in caplog.records]
    expected = ["1 .*test/bee/dir.jpg", "1 .*test/bee/link.jpg", "7 .*train/ant/30.tiff.* 2 more", "1 .*bee/pipe.jpg"]
    heic = next(message for message in unused if "31.heic" in message)
    unused.remove(heic)
    assert "JPEG" in heic
    assert len(unused) == 4 and all(message.startswith(f"{folder}: ") for message in messages)
    for message, pattern in zip(unused, expected):
        assert re.search(pattern, message), message
    assert "yak" in of_test and "ant, cow" in of_train
    assert sorted(labels_of(dataset, "test")) == [1, 1, 1, 3]
    opened(folder)
    assert len(caplog.records) == 7  # not repeated


def test_classes_whose_names_differ_in_case_or_blanks_are_named(tmp_path, caplog):
    for file in ("train/Cat/1.jpg", "train/red fox/1.jpg", "test/cat/1.jpg", "test/red fox /1.jpg", "test/dog/1.jpg"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_bytes(jpeg(0))
    assert opened(tmp_path).class_names == ("Cat", "cat", "dog", "red fox", "red fox ")
    pairs = [record.getMessage() for record in caplog.records if " are two classes" in record.getMessage()]
    assert len(pairs) == 2 and "'Cat' and 'cat'" in pairs[0] and "'red fox' and 'red fox '" in pairs[1]


@pytest.mark.parametrize("read", [lambda path: open_source(path), lambda path: open_dataset(Data(f"csv:{path}"))])
def test_similar_classes_of_sources_and_lists_are_named(tmp_path, caplog, read):
    for file in ("train/Cat/1.jpg", "test/cat/1.jpg"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_bytes(jpeg(0))
    (tmp_path / "train.csv").write_text("image,label\ntrain/Cat/1.jpg,Cat\ntest/cat/1.jpg,cat\n")
    read(str(tmp_path))
    assert "'Cat' and 'cat'" in caplog.text


def test_names_that_are_not_utf8_are_named(folder):
    (folder / "train" / "ant" / os.fsdecode(b"b\xe9b\xe9.jpg")).write_bytes(jpeg(10))
    for read in (opened, lambda path: prepare(str(path), f"{path}/records")):
        with pytest.raises(ValueError, match=r"train/ant .*b'b\\xe9b\\xe9.jpg'"):
            read(folder)


def test_paths_may_be_in_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert opened(f"~/{folder.name}").splits == {"test": 3, "train": 50}
    (folder / "records").mkdir()
    write_records(folder / "records", ("image", "label"))
    assert open_dataset(Data(dataset=f"tfrecord:~/{folder.name}/records")).splits == {"train": 7, "validation": 1}


def test_groups_of_a_table(tmp_path):
    images = [("cat", f"cat/{number}.jpg") for number in range(6)]
    lines = ["file,group", *(f"{file},patient {number // 2}" for number, (_, file) in enumerate(images[:4]))]
    (tmp_path / "groups.csv").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")  # as Excel writes it
    groups = groups_of("photos", str(tmp_path / "groups.csv"), images)
    assert list(groups.values()) == [f"patient {i}" for i in (0, 0, 1, 1)] + ["cat/4.jpg", "cat/5.jpg"]
    (tmp_path / "paths.csv").write_text("\n".join(line.replace("cat/", "photos/cat/") for line in lines))
    assert groups_of("photos", str(tmp_path / "paths.csv"), images) == groups
    for text, words in (("file,group\ncat/9.jpg,x\n", "none of the 6 files"), ("image,patient\na,b\n", "file,group")):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(ValueError, match=words):
            groups_of("photos", str(tmp_path / "x.csv"), images)
    with pytest.raises(ValueError, match="cannot be read"):
        groups_of("photos", str(tmp_path / "no.csv"), images)


def test_parts_of_a_split_do_not_cut_groups(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        for i in range(30):
            (tmp_path / name / f"p{i // 5}-{i}.jpg").write_bytes(jpeg(i))
    dataset = open_dataset(Data(f"folder:{tmp_path}", group=r"\w+/p\d+"))
    assert dataset.groups and dataset.cuts
    whole = image_names(dataset, "train")
    for percent in (10, 33, 50, 80, 97):
        parts = [image_names(dataset, f"train[{part}]") for part in (f":{percent}%", f"{percent}%:")]
        assert parts[0] + parts[1] == whole and len(parts[0]) == count_examples(dataset, f"train[:{percent}%]")
        groups = [{dataset.groups[name] for name in part} for part in parts]
        assert not groups[0] & groups[1] and abs(len(parts[0]) - len(whole) * percent / 100) <= 2.5
    assert len({dataset.groups[name] for name in whole}) == len(whole) / 5


@pytest.mark.parametrize(
    "text,words",
    [
        ("file,group\n", "no lines"),
        ("file,group\na/1.jpg,x\na/1.jpg,y\n", "files twice: a/1.jpg"),
        ("file,split\na/1.jpg, \n", "empty cells: a/1.jpg,"),
        ("file;group\na/1.jpg;x\n", "must have the columns file,group"),
        ('file,group\na/1.jpg,"x\n', "cannot be read"),
    ],
)
def test_damaged_tables(tmp_path, text, words):
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_table(str(tmp_path / "table.csv"))
