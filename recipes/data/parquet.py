"""Parquet files in the layout of the Hugging Face Hub's datasets, from the Hub or a folder. C classes, n images.

Files are data/<split>-00000-of-00002.parquet, <split>.parquet or <split>/0000.parquet. Their schema names the features:
one image, and a class or a sequence of classes.
"""

import json
import os
import re
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.messages import first_names
from keras_vit.recipes.data.image_dataset import ImageDataset, select_ranges, split_ranges
from keras_vit.recipes.data.tfrecords import check_numbers

MOST_GROUPS = 1_000_000  # which are shuffled: all
SHARD = re.compile(r"(.+?)-\d+-of-\d+.*")
LABELS = ("label", "labels")


class Columns(NamedTuple):
    """The columns of images and labels, the names of the classes, and whether an image has several."""

    image: str
    label: str
    names: tuple[str, ...]
    multi_label: bool


def open_hub(path: str, name: str) -> ImageDataset:
    """Opens "owner/name" of the Hub, whose Parquet files are downloaded to the Hub's cache, or a folder of such files.

    "owner/name?label=fine_label" chooses a feature where several are classes and none is named label.
    """
    path, _, label = path.partition("?label=")
    files = _list_files(Path(path) if os.path.isdir(path) else _download(path), path)
    columns = _common_columns([file for several in files.values() for file in several], path, label)
    groups = {split: _groups(several) for split, several in files.items()}
    splits = {split: sum(rows for *_, rows in parts) for split, parts in groups.items()}

    def parts(split):
        rows = select_ranges(groups, split_ranges(splits, split, name))
        files, *numbers = zip(*rows) if rows else ((), (), (), ())
        files = np.array([os.fsencode(file) for file in files], "S")
        return tf.data.Dataset.from_tensor_slices((files, *(np.array(column, "int64") for column in numbers)))

    def read(split):
        return parts(split).flat_map(partial(_examples, columns))

    def read_shuffled(split, seed):
        shuffled = parts(split).shuffle(MOST_GROUPS, seed=seed, reshuffle_each_iteration=False)
        return shuffled.flat_map(partial(_examples, columns))

    has_parts = any(len(several) > 1 for several in groups.values())
    return ImageDataset(
        name, columns.names, splits, read, read_shuffled if has_parts else None, multi_label=columns.multi_label
    )


def _require(module):
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"Datasets of the Hugging Face Hub require {package}: pip install 'vit-for-keras[hub]'."
        ) from error


def _list_files(folder: Path, path) -> dict[str, list[Path]]:
    """The files of each split."""
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*.parquet")):
        files.setdefault(_split(file), []).append(file)
    if not files:
        raise ValueError(
            f"{path!r} has no Parquet files. Expected <split>-00000-of-00001.parquet or <split>/0000.parquet."
        )
    parents = {file.parent for several in files.values() for file in several}
    # Of <configuration>/<split>/0000.parquet, the configuration.
    roots = {parent.parent if parent.name in files and parent != folder else parent for parent in parents}
    folders = sorted(str(root.relative_to(folder)) for root in roots)
    if len(folders) > 1:
        raise ValueError(
            f"{path!r} has several configurations: {first_names(folders)}. Download one of them, and pass its folder: "
            "hf:/path/to/folder."
        )
    paths = [str(file) for several in files.values() for file in several]
    check_numbers(paths, paths)
    return files


def _examples(columns, file, group, first, end):
    """The examples of some rows of a row group, as `ImageDataset.read` yields them."""
    shape, dtype = ((None, len(columns.names)), tf.float32) if columns.multi_label else ((None,), tf.int64)
    read = partial(_read_group, columns)
    values = tf.numpy_function(read, [file, group, first, end], [tf.string, tf.string, dtype])
    shaped = [tf.ensure_shape(value, static_shape) for value, static_shape in zip(values, ((None,), (None,), shape))]
    return tf.data.Dataset.from_tensor_slices(tuple(shaped))


def _read_group(columns, file, group, first, end):
    path = os.fsdecode(file)
    table = _require("pyarrow.parquet").ParquetFile(path).read_row_group(group, [columns.image, columns.label])
    table = table.slice(first, end - first)
    entries = [entry or {} for entry in table[columns.image].to_pylist()]
    if any(entry.get("bytes") is None and entry.get("path") for entry in entries):
        raise ValueError(f"{path} has paths of images instead of images.")
    encoded = [entry.get("bytes") or b"" for entry in entries]  # without bytes: not decodable, so it is skipped
    where = [f"{os.path.basename(path)} row group {group} image {first + i}" for i in range(len(encoded))]
    values = table[columns.label].to_pylist()
    if columns.multi_label:
        targets = np.zeros((len(values), len(columns.names)), "float32")  # (n, C)
        for row, classes in zip(targets, values):
            row[[number for number in classes or () if number >= 0]] = 1  # -1: no label
    else:
        targets = np.array([-1 if value is None else value for value in values], "int64")
    return np.array(where, object), np.array(encoded, object), targets


def _download(name):
    if name.count("/") != 1 or name.startswith(("/", ".", "~")):
        raise ValueError(
            f"There is no folder {name!r}. Expected hf:/path/to/folder, or hf:owner/name of the Hub, such as "
            "hf:uoft-cs/cifar100?label=fine_label."
        )
    huggingface_hub = _require("huggingface_hub")
    try:
        return Path(huggingface_hub.snapshot_download(name, repo_type="dataset", allow_patterns="*.parquet"))
    except Exception as error:  # of several libraries for the network
        reason = " ".join(str(error).split())[:120]
        raise OSError(
            f"The dataset {name!r} could not be downloaded from the Hugging Face Hub: {reason}... Check the name and "
            "the network, log in with `hf auth login` if it is gated, or download it and pass hf:/path/to/folder."
        ) from error


def _split(file: Path) -> str:
    """The split of a file: of its name, or of its folder if the name is a number."""
    stem = match[1] if (match := SHARD.fullmatch(file.stem)) else file.stem
    return file.parent.name if stem.isdigit() else stem


def _common_columns(files, path, label) -> Columns:
    """The columns that the files state, of which all but the first may state nothing."""
    first = _columns(_metadata(files[0]).schema.to_arrow_schema(), path, label)
    for file in files[1:]:
        schema = _metadata(file).schema.to_arrow_schema()
        columns = _columns(schema, path, label) if _described_features(schema) else first
        if columns != first:
            raise ValueError(
                f"The files of {path!r} have different classes or columns, so their labels differ in meaning. "
                f"{files[0]}: {_shown(first)}. {file}: {_shown(columns)}. Pass a folder whose files agree."
            )
    return first


def _metadata(file):
    try:
        return _require("pyarrow.parquet").read_metadata(file)
    except (OSError, ValueError) as error:  # pyarrow's errors are of both classes
        reason = str(error).splitlines()[0]
        raise ValueError(f"{file} is no complete Parquet file: {reason} Copy or download it again.") from error


def _shown(columns):
    return f"{columns.image}, {columns.label} of {len(columns.names)} classes ({first_names(columns.names)})"


def _described_features(schema) -> dict:
    """The features that the library datasets wrote into a schema; none if something else is there."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {column: _sequence(feature) for column, feature in features.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def _columns(schema, path, label) -> Columns:
    features = _described_features(schema)
    images = [column for column, feature in features.items() if feature.get("_type") == "Image"]
    classes = {column: feature for column, feature in features.items() if _class_names(feature)}
    wanted = (label,) if label else LABELS
    chosen = [column for column in wanted if column in classes] or list(classes)
    if len(images) != 1 or not chosen or (chosen[0] not in wanted and (label or len(chosen) > 1)):
        choice = f" Append ?label={chosen[0]} to choose one." if chosen else ""
        wanted_label = f"a ClassLabel {label!r}" if label else "a ClassLabel, or several of which one is 'label'"
        raise ValueError(
            f"{path!r} must have one feature that is an Image, and {wanted_label}. "
            f"Received: {', '.join(images) or 'none'}; {', '.join(classes) or 'none'}.{choice}"
        )
    feature = classes[chosen[0]]
    return Columns(images[0], chosen[0], _class_names(feature), feature.get("_type") != "ClassLabel")


def _sequence(feature) -> dict:
    """A feature as newer versions of datasets describe it: a sequence was a list of one feature."""
    return {"_type": "Sequence", "feature": feature[0]} if isinstance(feature, list) and feature else dict(feature)


def _class_names(feature) -> tuple[str, ...]:
    """The names of a ClassLabel or of a sequence of them; none for other features."""
    inner = feature.get("feature", feature)
    inner = inner if isinstance(inner, dict) else {}
    names = inner.get("names") if inner.get("_type") == "ClassLabel" else None
    return tuple(names) if isinstance(names, list) and all(isinstance(each, str) for each in names) else ()


def _groups(files) -> list[tuple[str, int, int]]:
    """(file, number of the row group, rows) of a split."""
    groups = []
    for file in files:
        metadata = _metadata(file)
        groups += [(str(file), i, metadata.row_group(i).num_rows) for i in range(metadata.num_row_groups)]
    return groups
