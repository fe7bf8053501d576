"""Lists of images with several labels each."""

import numpy as np
import pytest
from images_on_disk import jpeg

from keras_vit.recipes.data import evaluation_batches, open_dataset, read_labels, training_batches
from keras_vit.recipes.recipe import Augment, Data

TRAIN = "image,labels\n" + "".join(
    f"images/{i}.jpg,{labels}\n" for i, labels in enumerate(["cat;dog", "dog", "", "sky; cat"])
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for i in range(6):
        (tmp_path / "images" / f"{i}.jpg").write_bytes(jpeg(40 * i))
    (tmp_path / "train.csv").write_text(TRAIN)
    (tmp_path / "test.csv").write_text('image,label\n"images/4.jpg",tree\nimages/5.jpg,cat;cat\n')
    return tmp_path


def examples(dataset, split):
    found = dataset.read(split).as_numpy_iterator()
    return {name.decode().rpartition("/")[2]: label.tolist() for name, _, label in found}


def test_labels_are_zeros_and_ones_for_the_classes_of_all_splits(folder):
    dataset = open_dataset(Data(f"csv:{folder}"))
    assert list(dataset.class_names) == ["cat", "dog", "sky", "tree"] and dataset.multi_label
    assert dataset.splits == {"test": 2, "train": 4}
    labels = ([1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0])
    assert examples(dataset, "train") == {f"{i}.jpg": label for i, label in enumerate(labels)}
    assert examples(dataset, "test") == {"4.jpg": [0, 0, 0, 1], "5.jpg": [1, 0, 0, 0]}
    with pytest.raises(ValueError, match="csv:"):
        read_labels(dataset, "train")
    parts = examples(dataset, "train[:50%]"), examples(dataset, "train[50%:]")
    assert len(parts[0]) == 2 and {**parts[0], **parts[1]} == examples(dataset, "train")


def test_lists_of_excel(folder):
    """They begin with a byte order mark."""
    expected = examples(open_dataset(Data(f"csv:{folder}")), "test")
    text = (folder / "test.csv").read_text()
    (folder / "test.csv").write_text(text, encoding="utf-8-sig")
    assert examples(open_dataset(Data(f"csv:{folder}")), "test") == expected


def test_lists_of_one_label_per_line_have_one_class_per_image(folder):
    (folder / "train.csv").write_text("image,label\nimages/0.jpg,dog\nimages/1.jpg, cat\nimages/2.jpg,dog\n")
    (folder / "test.csv").write_text("image,label\nimages/4.jpg,cat\n")
    dataset = open_dataset(Data(f"csv:{folder}"))
    assert dataset.class_names == ("cat", "dog") and not dataset.multi_label
    assert examples(dataset, "train") == {"0.jpg": 1, "1.jpg": 0, "2.jpg": 1}
    assert read_labels(dataset, "train").dtype == "int64" and examples(dataset, "test") == {"4.jpg": 0}
    for text in (
        "image,label\nimages/4.jpg,cat;dog\n",
        "image,label\nimages/4.jpg,\n",
        "image,labels\nimages/4.jpg,cat\n",
    ):
        (folder / "test.csv").write_text(text)
        assert open_dataset(Data(f"csv:{folder}")).multi_label


def test_labels_txt_orders_the_classes(folder):
    (folder / "labels.txt").write_text("tree\nsky\ndog\ncat\nbird\n", encoding="utf-8-sig")
    dataset = open_dataset(Data(f"csv:{folder}"))
    assert list(dataset.class_names) == ["tree", "sky", "dog", "cat", "bird"]
    assert examples(dataset, "test")["4.jpg"] == [1, 0, 0, 0, 0]


def test_batches_have_the_images_of_their_labels(folder):
    data = Data(f"csv:{folder}", image_size=8, batch_size=4, crop="none", flip=False, augment=Augment(mixup_alpha=0.5))
    dataset = open_dataset(data)
    images, labels, weights = next(evaluation_batches(data, dataset, "train").as_numpy_iterator())
    values = np.round((images.mean(axis=(1, 2, 3)) * 0.5 + 0.5) * 255 / 40).astype(int)
    expected = examples(dataset, "train")
    assert labels.tolist() == [expected[f"{value}.jpg"] for value in values] and np.all(weights == 1)
    images, labels = next(training_batches(data, dataset, 0).as_numpy_iterator())
    assert labels.shape == (4, 4) and labels.dtype == "float32" and 0 < labels.max() <= 1


@pytest.mark.parametrize(
    "file,text,words",
    [
        ("train.csv", "images/0.jpg,cat\n", "'images/0.jpg,cat'"),
        ("train.csv", "image,labels\nimages/0.jpg,cat,dog\n", "Line 2 "),
        ("train.csv", "image,labels\nimages/0.jpg,a\nimages/0.jpg,b\n", "Line 3 .* images/0.jpg"),
        ("train.csv", "image,labels\nimages/9.jpg,cat\n", "1 of the 1 .*images/9.jpg"),
        ("train.csv", "image,labels\n./images/0.jpg,a\nimages/0.jpg,b\n", "Line 3 .* images/0.jpg"),
        ("train.csv", 'image,labels\nimages/0.jpg,"cat\nimages/1.jpg,dog\n', "end of data"),
        ("train.csv", 'image,labels\nimages/0.jpg,"cat\ndog"\n', "Line 3 "),
        ("train.csv", "image,labels\nimages/0.jpg,a\nimages/x.heic,b\n", "images/x.heic.* JPEG"),
        ("train.csv", "image,labels\n", "None .*train.csv"),
        ("labels.txt", "cat\ndog\n", "2 .*labels.txt: sky, tree"),
        ("labels.txt", "cat\ndog\nsky\ntree\ncat\n", "twice"),
        ("test.csv", b"image,labels\nimages/4.jpg,ni\xf1o\n", "test.csv .*UTF-8"),
    ],
)
def test_mistakes_in_the_files_are_named(folder, file, text, words):
    if file == "train.csv":
        (folder / "test.csv").unlink()
    (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=words):
        open_dataset(Data(f"csv:{folder}"))


@pytest.mark.parametrize("name", ["", "/nowhere"])
def test_folders_without_lists_raise(tmp_path, name):
    with pytest.raises(ValueError, match="<split>.csv"):
        open_dataset(Data(f"csv:{tmp_path}{name}"))


def test_groups_and_lists_without_splits(folder):
    lines = [f"images/{i}.jpg,{'dog' if i % 2 else 'cat'},patient{i // 2}" for i in range(6)]
    (folder / "train.csv").write_text("\n".join(["image,label,group", *lines[:4], ""]))
    (folder / "test.csv").write_text("\n".join(["image,label,group", lines[4], lines[5].rpartition(",")[0] + ",", ""]))
    dataset = open_dataset(Data(f"csv:{folder}"))
    assert dataset.groups[f"{folder}/images/1.jpg"] == "patient0" and dataset.cuts["train"] == [0, 2, 4]
    assert dataset.groups[f"{folder}/images/5.jpg"] == f"{folder}/images/5.jpg"  # of its own
    assert len(examples(dataset, "train[:40%]")) == 2 == len(examples(dataset, "train[40%:]"))
    (folder / "test.csv").write_text("image,label,group\nimages/4.jpg,cat,patient1\n")
    with pytest.raises(ValueError, match="1 group of .*patient1. Move"):
        open_dataset(Data(f"csv:{folder}"))
    for name in ("train.csv", "test.csv"):
        (folder / name).unlink()
    (folder / "images.csv").write_text("\n".join(["image,label,group", *lines, ""]))
    dataset = open_dataset(Data(f"csv:{folder}"))
    files = {split: examples(dataset, split) for split in ("train", "test")}
    assert len(files["train"]) + len(files["test"]) == 6 and files["train"] and files["test"]
    patients = [{int(name[0]) // 2 for name in names} for names in files.values()]
    assert not patients[0] & patients[1]
