"""Images with any number of labels, or with one, listed in /path/<split>.csv, local or on gs://. C classes.

    image,labels
    photos/1.jpg,cat;dog
    photos/2.jpg,

Images are relative to /path; labels are separated by semicolons, and an image may have none. Classes are the labels of
all splits in the order of their names, or the lines of /path/labels.txt. Files that all begin with image,label and have
one label in each line are a dataset of one class per image. A third column, group, names what an image belongs to: a
group is in one split. /path/images.csv, alone, is split as a folder, see `split_by_hash`.
"""

import csv
import io
import os
import posixpath

import numpy as np
import tensorflow as tf

from keras_vit.messages import first_names
from keras_vit.recipes.data.folder_layout import HEIC, HEIC_FIX
from keras_vit.recipes.data.groups import GROUP, check_groups, read_text
from keras_vit.recipes.data.image_dataset import ImageDataset, fixed_orders, split_ranges
from keras_vit.recipes.data.image_folder import split_by_hash, warn_of_similar_names

CSV = ".csv"
HEADERS = (["image", "labels"], ["image", "label"])
UNSPLIT = "images"
SEPARATOR = ";"
LABELS = "labels.txt"


def open_csv(path: str, name: str) -> ImageDataset:
    """Reads the lists of a folder. The order of a split's images is a fixed permutation, as of `open_folder`."""
    files = [file.rstrip("/") for file in tf.io.gfile.listdir(path)] if path and tf.io.gfile.isdir(path) else []
    lists = {file.removesuffix(CSV): tf.io.gfile.join(path, file) for file in sorted(files) if file.endswith(CSV)}
    if not lists:
        raise ValueError(
            f"{path!r} has no list of images. Expected a folder with <split>.csv, such as train.csv and test.csv, "
            "whose lines are image,labels and then one image each, such as photos/1.jpg,cat;dog"
        )
    rows, several = {}, False
    group_of: dict[str, str] = {}
    for split, file in lists.items():
        header, rows[split], groups = _read_rows(file, path)
        group_of |= groups
        several |= header != "label" or any(len(labels) != 1 for _, labels in rows[split])
    if list(rows) == [UNSPLIT]:
        labels_of = dict(rows[UNSPLIT])
        named = [("" if several else labels[0], image) for image, labels in rows[UNSPLIT]]
        rows = {
            split: [(image, labels_of[image]) for _, image in images]
            for split, images in split_by_hash(named, group_of).items()
        }
    group_of = {image: group_of.get(image, image) for split in rows.values() for image, _ in split} if group_of else {}
    check_groups(
        path,
        {split: [("", image) for image, _ in images] for split, images in rows.items()},
        group_of,
        "Move all images of a group into one list.",
    )
    label_names = sorted({label for split in rows.values() for _, labels in split for label in labels})
    warn_of_similar_names(path, label_names)
    names = _read_names(tf.io.gfile.join(path, LABELS), label_names) if LABELS in files else tuple(label_names)
    if not names:
        raise ValueError(f"None of the images in {', '.join(lists.values())} has a label.")
    number = {label: i for i, label in enumerate(names)}
    splits = {split: len(examples) for split, examples in rows.items()}
    of_images = {split: [group_of[image] for image, _ in of] for split, of in rows.items()} if group_of else {}
    orders, cuts = fixed_orders(splits, of_images)

    def read(split):
        examples = []
        for part, start, end in split_ranges(splits, split, name, cuts):
            examples += [rows[part][i] for i in orders[part][start:end]]
        paths = tf.constant([image for image, _ in examples], tf.string)
        classes = tf.constant([number[label] for _, labels in examples for label in labels], tf.int64)
        if not several:
            return tf.data.Dataset.from_tensor_slices((paths, paths, classes))
        ends = np.cumsum([0, *(len(labels) for _, labels in examples)])  # of an image's part of the classes

        def with_target(image, start, end):
            indices = classes[start:end, None]
            return image, image, tf.scatter_nd(indices, tf.ones_like(indices[:, 0], tf.float32), (len(names),))  # (C,)

        return tf.data.Dataset.from_tensor_slices((paths, ends[:-1], ends[1:])).map(with_target)

    return ImageDataset(
        name,
        names,
        splits,
        read,
        stores_paths=True,
        multi_label=several,
        groups=group_of or None,
        cuts=cuts or None,
    )


def _read_rows(file, folder) -> tuple[str, list[tuple[str, tuple[str, ...]]], dict[str, str]]:
    """The name of the second column, (path of the image, labels) of each line, and the groups of images with one."""
    reader = csv.reader(io.StringIO(read_text(file), newline=""), strict=True)
    try:
        (_, header), *lines = [(reader.line_num, cells) for cells in reader] or [(1, [])]
    except csv.Error as error:
        raise ValueError(f"{file} is no CSV file: {error}, up to line {reader.line_num}. Close all quotes.") from error
    columns = [cell.strip().lower() for cell in header]
    if columns[:2] not in HEADERS or columns[2:] not in ([], [GROUP]):
        raise ValueError(
            f"The first line of {file} must be image,labels or image,labels,group. Received: {','.join(header)!r}"
        )
    rows, images, groups = [], set(), {}
    for number, line in lines:
        if not line:
            continue
        if len(line) != len(columns) or not line[0].strip() or len("".join(line).splitlines()) > 1:
            raise ValueError(
                f"Line {number} of {file} must be an image and its labels, such as photos/1.jpg,cat;dog. Received: "
                f"{','.join(line)!r}"
            )
        image = line[0].strip()
        if (same := posixpath.normpath(image)) in images:
            raise ValueError(f"Line {number} of {file} lists {same} again. Write all of its labels into one line.")
        images.add(same)
        labels = dict.fromkeys(label.strip() for label in line[1].split(SEPARATOR) if label.strip())
        rows.append((tf.io.gfile.join(folder, image), tuple(labels)))
        if line[2:] and line[2].strip():
            groups[rows[-1][0]] = line[2].strip()
    if heic := [image for image, _ in rows if image.lower().endswith(HEIC)]:
        raise ValueError(
            f"{file} lists {len(heic):,} images of a format that is not read: {first_names(heic)}. {HEIC_FIX}"
        )
    if "://" not in folder and (missing := [image for image, _ in rows if not os.path.isfile(image)]):
        raise ValueError(f"{len(missing):,} of the {len(rows):,} images in {file} are missing: {first_names(missing)}")
    return columns[1], rows, groups


def _read_names(file, labels) -> tuple[str, ...]:
    names = tuple(line.strip() for line in read_text(file).splitlines() if line.strip())
    known = set(names)
    if unknown := [label for label in labels if label not in known]:
        raise ValueError(f"{len(unknown):,} labels are not in {file}: {first_names(unknown)}. Add them, or delete it.")
    if len(known) < len(names):
        raise ValueError(f"{file} has a label twice. Expected one line for each class.")
    return names
