"""Folders of images, /path/<split>/<class>/<image> or /path/<class>/<image>, local or on gs://, as datasets.

In a folder without splits, about a fifth of the images is for evaluation, see `split_by_hash`.
"""

import hashlib
import os
import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from keras_vit.messages import first_names
from keras_vit.recipes.data.folder_layout import (
    EXTENSIONS,
    HEIC,
    HEIC_FIX,
    converted_files,
    log_once,
    walk,
    wrong_layout,
)
from keras_vit.recipes.data.groups import ImageTable, check_groups, groups_of, splits_of
from keras_vit.recipes.data.image_dataset import ImageDataset, fixed_orders, split_ranges

TEST_FRACTION = 0.2


def open_folder(
    path: str, name: str, group: str | ImageTable | None = None, converted: str | None = None
) -> ImageDataset:
    """Lists the images of a folder; `group` and `converted` are those of `Data`, or `group` its table.

    A folder without splits, /path/<class>/<image>, gets those of the table, or "train" and "test" by `split_by_hash`.
    The order of a split's images is a fixed permutation, so that a part such as "train[:98%]" has images of all
    classes. Classes are numbered in the order of their names, over all splits; folders without images are none. A
    warning names files that are not used, and classes that only one of several splits has. A folder that is missing, or
    laid out in another way, a file without a group, and a group in several splits raise ValueError.
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

    of_images = {split: [groups[file] for _, file in pairs] for split, pairs in files.items()} if groups else {}
    orders, cuts = fixed_orders(splits, of_images)

    def read(split):
        examples = []
        for part, start, end in split_ranges(splits, split, name, cuts):
            for class_name, file in (files[part][i] for i in orders[part][start:end]):
                place = tf.io.gfile.join(path, file)
                examples.append((place, stored.get(file, place), labels[class_name]))
        names, paths, targets = zip(*examples) if examples else ((), (), ())
        columns = tf.constant(names, tf.string), tf.constant(paths, tf.string), np.array(targets, "int64")
        return tf.data.Dataset.from_tensor_slices(columns)

    of_names = {tf.io.gfile.join(path, file): of_file for file, of_file in groups.items()}
    return ImageDataset(name, class_names, splits, read, stores_paths=True, groups=of_names or None, cuts=cuts or None)


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
            log_once(f"{path}: {same!r} and {name!r} are two classes. If they are one, give both the same name.")


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
        groups, unused = groups_of(path, group, loose), {}
        for file, reason in others:
            unused.setdefault(reason, []).append(file)
        # Also an empty one, so that both together are all images.
        splits = splits_of(path, group, loose) or split_by_hash(loose, groups)
        check_groups(path, splits, groups, f"Give all images of a group the same split in {group}.")
        return splits, unused, groups
    if loose:
        unused["in no folder of a class"] = [file for _, file in loose]
    images = [image for of_split in splits.values() for image in of_split]
    groups = groups_of(path, group, images)
    if splits_of(path, group, images):
        raise ValueError(f"{path} has splits of its own, {first_names(splits)}, so that {group} must have none.")
    check_groups(path, splits, groups, "Give the folder without splits, /<class>/<image>, to keep them together.")
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
            if file not in stored and (reason := _reason_not_to_read(path, file, stored)):
                others.append((file, reason))
            else:
                images.append((class_of(file), file))
    return images, others


def _reason_not_to_read(folder, file, stored) -> str | None:
    """What a file is, if it is not used; None for an image. Reading pipes would block. With `stored` all are read."""
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
    if is_image_name:
        return "not regular files"
    return "no images" if stored else f"names that do not end in {', '.join(EXTENSIONS)}"


def _warn(path, files, unused):
    """Logs what in a folder is probably a mistake."""
    for reason, names in unused.items():
        log_once(f"{path}: {len(names):,} not used ({reason}): {first_names(names)}")
    classes = {split: {class_name for class_name, _ in pairs} for split, pairs in files.items() if pairs}
    for split, names in classes.items():
        only_here = sorted(names.difference(*(classes[other] for other in classes if other != split)))
        if only_here and len(classes) > 1:
            noun = "classes" if only_here[1:] else "class"
            log_once(f"{path}: only the split {split!r} has images of the {noun} {first_names(only_here)}")
    warn_of_similar_names(path, set().union(*classes.values()))
