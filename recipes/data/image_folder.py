"""Folders of images, /path/<split>/<class>/<image> or /path/<class>/<image>, local or on gs://, as datasets.

In a folder without splits, about a fifth of the images is for evaluation, see `split_by_hash`.
"""

import csv
import functools
import hashlib
import io
import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from keras_vit.messages import first_names
from keras_vit.recipes.data.folder_layout import EXTENSIONS, HEIC, HEIC_FIX, converted_files, walk, wrong_layout
from keras_vit.recipes.data.image_dataset import ImageDataset, split_ranges

TEST_FRACTION = 0.2
TABLE = ".csv"
GROUP_COLUMNS = ["file", "group"]  # of a table of groups


def open_folder(
    path: str, name: str, group: str | Mapping[str, str] | None = None, converted: str | None = None
) -> ImageDataset:
    """Lists the images of a folder; `group` and `converted` are those of `Data`, or `group` those of its table.

    A folder without splits, /path/<class>/<image>, gets "train" and "test" by `split_by_hash`. The order of a split's
    images is a fixed permutation, so that a part such as "train[:98%]" has images of all classes. Classes are numbered
    in the order of their names, over all splits; folders without images are none. A warning names files that are not
    used, and classes that only one of several splits has. A folder that is missing, or laid out in another way, a file
    without a group, and a group in several splits raise ValueError.
    """
    check_folder(path)
    stored = converted_files(converted)
    files, unused, groups = _list_splits(path, group, stored)
    if not files:
        raise ValueError(wrong_layout(path, walk_files(path)))
    class_names = tuple(sorted({class_name for pairs in files.values() for class_name, _ in pairs}))
    labels = {class_name: label for label, class_name in enumerate(class_names)}
    splits = {split: len(pairs) for split, pairs in files.items()}
    _warn(path, files, unused)

    def read(split):
        examples = []
        for part, start, end in split_ranges(splits, split, name):
            order = np.random.RandomState(0).permutation(splits[part])[start:end]  # RandomState never changes
            for class_name, file in (files[part][i] for i in order):
                place = tf.io.gfile.join(path, file)
                examples.append((place, stored.get(file, place), labels[class_name]))
        names, paths, targets = zip(*examples) if examples else ((), (), ())
        columns = tf.constant(names, tf.string), tf.constant(paths, tf.string), np.array(targets, "int64")
        return tf.data.Dataset.from_tensor_slices(columns)

    of_names = {tf.io.gfile.join(path, file): of_file for file, of_file in groups.items()}
    return ImageDataset(name, class_names, splits, read, stores_paths=True, groups=of_names or None)


def check_folder(path: str, layout: str = "<class>/<image> or <split>/<class>/<image>"):
    """Raises ValueError if there is no such folder."""
    if not path or not tf.io.gfile.isdir(path):
        found = f"{path!r} is a file" if path and tf.io.gfile.exists(path) else f"There is no folder {path!r}"
        raise ValueError(f"{found}. Expected a folder with {layout}.")


def list_folders(path: str) -> list[str]:
    """Sorted names of the folders in a folder, without hidden ones; raises ValueError for names that are not UTF-8."""
    names = _list_names(path)
    remote = "://" in path  # object stores mark folders by "/", and a request for each name takes long
    folders = [n for n in names if n.endswith("/") or (not remote and tf.io.gfile.isdir(tf.io.gfile.join(path, n)))]
    return sorted(name.rstrip("/") for name in folders if not name.startswith("."))


def list_files(class_name: str, path: str) -> list[str]:
    """Sorted "<class>/<file>" of everything in a folder of `path`, without hidden files."""
    names = _list_names(tf.io.gfile.join(path, class_name))
    return sorted(f"{class_name}/{name}" for name in names if name.strip("/") and name[0] != ".")


def class_of(file: str) -> str:
    """The class of "<class>/<file>" or "<class>", in Unicode's composed form: macOS writes é as two characters."""
    return unicodedata.normalize("NFC", file.partition("/")[0])


def warn_of_similar_names(path: str, names: Iterable[str]):
    """Logs classes of a folder or of lists whose names differ only in case and blanks."""
    first: dict[str, str] = {}
    for name in sorted(names):
        same = first.setdefault("".join(name.split()).casefold(), name)
        if same != name:
            _log_once(f"{path}: {same!r} and {name!r} are two classes. If they are one, give both the same name.")


def walk_files(path: str) -> Iterator[str]:
    """Yields all files below a folder, at any depth: paths relative to `path`, in a fixed order, no hidden files."""
    remote = ((folder, sorted(names)) for folder, _, names in tf.io.gfile.walk(path))
    for folder, names in remote if "://" in path else walk(path):
        parent = folder[len(path) :].strip("/")
        for name in names:
            if not name.startswith("."):
                yield f"{parent}/{name}" if parent else name


def _list_names(path) -> list[str]:
    """Names of everything in a folder, as `tf.io.gfile.listdir`, which does not report the name that it cannot read."""
    if "://" in path:
        return tf.io.gfile.listdir(path)
    for name in (names := os.listdir(path)):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{path} has the name {os.fsencode(name)!r}, which is not UTF-8. Rename it.") from None
    return names


def _list_splits(path, group, stored):
    """The images of each split that has some, [(class, file)], the files that are not used, by reason, and the groups.

    Files are relative to the path. Whether its folders are splits or classes is what more of the images say. `stored`
    is that of `converted_files`.
    """
    splits, unused = {}, {}
    for split in list_folders(path):
        in_split = {file.removeprefix(f"{split}/") for file in stored if file.startswith(f"{split}/")}
        images, others = _class_files(tf.io.gfile.join(path, split), in_split)
        splits[split] = [(class_name, f"{split}/{file}") for class_name, file in images]
        for file, reason in others:
            unused.setdefault(reason, []).append(f"{split}/{file}")
    loose, others = _class_files(path, stored)
    if len(loose) > sum(map(len, splits.values())):
        groups = groups_of(path, group, loose)
        splits, unused = split_by_hash(loose, groups), {}
        for file, reason in others:
            unused.setdefault(reason, []).append(file)
    else:
        if loose:
            unused["in no folder of a class"] = [file for _, file in loose]
        of_splits = {split: groups_of(path, group, images) for split, images in splits.items()}
        check_groups(path, of_splits)
        groups = {file: of_file for of_split in of_splits.values() for file, of_file in of_split.items()}
    return {split: images for split, images in splits.items() if images}, unused, groups


def split_by_hash(
    images: list[tuple[str, str]], groups: dict[str, str] | None = None
) -> dict[str, list[tuple[str, str]]]:
    """Splits images into "train" and "test" by a hash of the name of each file, or of its group if there are groups.

    About a fifth of the hashes is low enough for "test". Nothing changes sides when other images are added or removed,
    and the choice is the same on every machine; but a class that would have no test image has that of its lowest hash,
    and one without a training image that of its highest, until others come. A class with a single image or group has
    it in "train". Images are (class, file), and keep their order; `groups` is from file to group.
    """
    groups = groups or {file: file for _, file in images}
    by_class: dict[str, set[str]] = {}
    for class_name, file in images:
        by_class.setdefault(class_name, set()).add(groups[file])
    test = {group for group in groups.values() if _hash(group) < TEST_FRACTION}
    for _, names in sorted(by_class.items()):
        ordered = sorted(names, key=_hash)
        if len(names) > 1 and not names & test:
            test.add(ordered[0])
        elif names <= test:
            test.discard(ordered[-1])
    return {
        "train": [image for image in images if groups[image[1]] not in test],
        "test": [image for image in images if groups[image[1]] in test],
    }


def _hash(name: str) -> float:
    """In [0, 1)."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) / 2**48


def groups_of(path: str, pattern: str | Mapping[str, str] | None, images: list[tuple[str, str]]) -> dict[str, str]:
    """The group of each file: what a regular expression matches, or its first part in parentheses; {} without one.

    Or the group that a table or its file has for it, by "<class>/<image>" or the whole path; files that are not in it
    are a group each.
    """
    if pattern is None:
        return {}
    if isinstance(pattern, Mapping) or pattern.endswith(TABLE):
        table = pattern if isinstance(pattern, Mapping) else _read_groups(pattern)
        places = {file: tf.io.gfile.join(path, file) for _, file in images}
        missing = [file for file, place in places.items() if file not in table and place not in table]
        if missing and len(missing) == len(places):
            raise ValueError(
                f"The table of groups {pattern} has none of the {len(images):,} files in {path}. It has "
                f"{first_names(table)}; they have {first_names(missing)}"
            )
        if missing:
            _log_once(f"{path}: {len(missing):,} files are not in {pattern}, and are groups of their own.")
        return {file: table.get(file, table.get(place, file)) for file, place in places.items()}
    part = 1 if re.compile(pattern).groups else 0
    matches = {file: re.search(pattern, file) for _, file in images}
    groups = {file: match[part] for file, match in matches.items() if match and match[part]}
    if none := [file for file in matches if file not in groups]:
        raise ValueError(
            f"{len(none):,} of {len(images):,} files in {path} have no group: {pattern!r} matches no part of "
            f"{first_names(none)}"
        )
    return groups


def _read_groups(file: str) -> dict[str, str]:
    """The table of groups in a CSV file: "<class>/<image>" to group."""
    try:
        with tf.io.gfile.GFile(file, "rb") as content:
            text = content.read().decode("utf-8-sig")  # without the mark that Excel begins UTF-8 with
        head, *rows = [row for row in csv.reader(io.StringIO(text)) if row] or [[]]
    except (tf.errors.NotFoundError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"The table of groups {file} cannot be read: {error}") from error
    if head != GROUP_COLUMNS or any(len(row) != 2 for row in rows):
        raise ValueError(
            f"The table of groups {file} must have the columns {','.join(GROUP_COLUMNS)}, with a line such as "
            f"cat/1.jpg,patient7 for each image. Received: {','.join(head)!r}"
        )
    return {image: group for image, group in rows}


def check_groups(path, groups: dict[str, dict[str, str]]):
    """Raises ValueError if a group has images in several splits; `groups` is split -> file -> group."""
    split_of: dict[str, str] = {}
    both = {
        group: (split, split_of[group])
        for split, names in groups.items()
        for group in names.values()
        if split_of.setdefault(group, split) != split
    }
    if both:
        first, second = next(iter(both.values()))
        raise ValueError(
            f"{len(both):,} groups of {path} have images in several splits, such as {second!r} and {first!r}: "
            f"{first_names(sorted(both))}. Give the folder without splits, /<class>/<image>, to keep them together."
        )


def _class_files(path, stored):
    """Sorted (class, "<class>/<image>") of a split's folder, and (file, reason) of the files that are not used.

    Those among `stored` are images.
    """
    images, others = [], []
    for class_name in list_folders(path):
        files = list_files(class_name, path)
        if not files:
            others.append((class_name, "empty folders"))
        for file in files:
            if file not in stored and (reason := _reason_not_to_read(path, file)):
                others.append((file, reason))
            else:
                images.append((class_of(file), file))
    return images, others


def _reason_not_to_read(folder, file) -> str | None:
    """What a file is, if it is not used; None for an image. Reading pipes would block."""
    local = os.path.join(folder, file)
    is_image_name = file.lower().endswith(EXTENSIONS)
    if is_image_name and ("://" in folder or os.path.isfile(local)):
        return None
    if file.endswith("/") or ("://" not in folder and os.path.isdir(local)):
        return "folders in the folder of a class"
    if os.path.islink(local) and not os.path.exists(local):
        return "links that lead nowhere"
    if file.lower().endswith(HEIC):
        return HEIC_FIX
    return "not regular files" if is_image_name else f"names that do not end in {', '.join(EXTENSIONS)}"


def _warn(path, files, unused):
    """Logs what in a folder is probably a mistake."""
    for reason, names in unused.items():
        _log_once(f"{path}: {len(names):,} not used ({reason}): {first_names(names)}")
    classes = {split: {class_name for class_name, _ in pairs} for split, pairs in files.items()}
    for split, names in classes.items():
        only_here = sorted(names.difference(*(classes[other] for other in classes if other != split)))
        if only_here and len(classes) > 1:
            noun = "classes" if only_here[1:] else "class"
            _log_once(f"{path}: only the split {split!r} has images of the {noun} {first_names(only_here)}")
    warn_of_similar_names(path, set().union(*classes.values()))


@functools.cache
def _log_once(message):
    """Logs a warning, once in a process: a run opens its dataset several times."""
    logging.getLogger(__name__).warning(message)
