"""Groups of the images of a folder, which stay in one split: by a regular expression, or by a table.

    file,group,split
    cat/1.jpg,patient7,fold1

A table has the column group, split or both.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import tensorflow as tf

from keras_vit.messages import first_names
from keras_vit.recipes.data.folder_layout import log_once

TABLE = ".csv"
FILE, GROUP, SPLIT = COLUMNS = ("file", "group", "split")


@dataclass(frozen=True)
class ImageTable:
    """What a table says of images, by "<class>/<image>" or the whole path.

    Args:
        groups: What each image belongs to; {} without the column.
        splits: The split of each image; {} without the column. Images that are not listed are in none.
    """

    groups: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)

    def write(self, path: Path):
        """Writes the CSV file."""
        columns = {name: values for name, values in ((GROUP, self.groups), (SPLIT, self.splits)) if values}
        files = self.groups or self.splits
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = ([name, *(values[name] for values in columns.values())] for name in files)
            csv.writer(file).writerows([[FILE, *columns], *rows])


def groups_of(path: str, group: str | ImageTable | None, images: list[tuple[str, str]]) -> dict[str, str]:
    """The group of each of a folder's images, (class, file): {} if there are none.

    It is what a regular expression matches, or its first part in parentheses; or that of a table or its file. Files
    that are not in the table are a group each.
    """
    if group is None:
        return {}
    if isinstance(group, ImageTable) or group.endswith(TABLE):
        listed = _of_images(path, group, images, GROUP)
        return {file: listed.get(file, file) for _, file in images} if listed else {}
    part = 1 if re.compile(group).groups else 0
    matches = {file: re.search(group, file) for _, file in images}
    groups = {file: match[part] for file, match in matches.items() if match and match[part]}
    if none := [file for file in matches if file not in groups]:
        raise ValueError(
            f"{len(none):,} of {len(images):,} files in {path} have no group: {group!r} matches no part of "
            f"{first_names(none)}"
        )
    return groups


def splits_of(
    path: str, group: str | ImageTable | None, images: list[tuple[str, str]]
) -> dict[str, list[tuple[str, str]]]:
    """The splits of a table, each with its images (class, file) in their order; {} if it has none."""
    if group is None or not (isinstance(group, ImageTable) or group.endswith(TABLE)):
        return {}
    listed = _of_images(path, group, images, SPLIT)
    splits: dict[str, list[tuple[str, str]]] = {name: [] for name in sorted(set(listed.values()))}
    for image in images:
        if image[1] in listed:
            splits[listed[image[1]]].append(image)
    return splits


def _of_images(path, table: str | ImageTable, images, column: str) -> dict[str, str]:
    """The values of a column by file, of those that the table has; logs how many it has not."""
    opened = table if isinstance(table, ImageTable) else read_table(table)
    values = opened.groups if column == GROUP else opened.splits
    if not values:
        return {}
    places = {file: tf.io.gfile.join(path, file) for _, file in images}
    listed = {file: values.get(file, values.get(place)) for file, place in places.items()}
    missing = [file for file, value in listed.items() if value is None]
    name = "" if isinstance(table, ImageTable) else f" {table}"
    if len(missing) == len(images):
        raise ValueError(
            f"The table of groups{name} has none of the {len(images):,} files in {path}. It has "
            f"{first_names(values)}; they have {first_names(missing)}"
        )
    if column == SPLIT and (lost := set(values).difference(places, places.values())):
        raise ValueError(f"{len(lost):,} files of the table{name} are not in {path}: {first_names(sorted(lost))}")
    if missing and (column == SPLIT or not opened.splits):  # without a split, their groups do not matter
        are = "are groups of their own" if column == GROUP else "are in no split"
        log_once(f"{path}: {len(missing):,} files are not in the table{name}, and {are}.")
    return {file: value for file, value in listed.items() if value is not None}


@contextmanager
def naming_wrong_encoding(file):
    """Raises ValueError in place of UnicodeDecodeError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text: {error}. Save it as UTF-8 (Excel: CSV UTF-8).") from error


def read_text(file) -> str:
    """The text of a file, local or on gs://, without the mark that Excel begins UTF-8 with."""
    with naming_wrong_encoding(file), tf.io.gfile.GFile(file, "rb") as content:
        return content.read().decode("utf-8-sig")


def read_table(file: str) -> ImageTable:
    """The table in a CSV file, local or on gs://.

    Raises:
        ValueError: It cannot be read, or has other columns.
    """
    try:
        head, *rows = [row for row in csv.reader(io.StringIO(read_text(file)), strict=True) if row] or [[]]
    except (tf.errors.NotFoundError, csv.Error) as error:
        raise ValueError(f"The table of groups {file} cannot be read: {error}") from error
    allowed = ([FILE, GROUP], [FILE, SPLIT], list(COLUMNS))
    if head not in allowed or any(len(row) != len(head) for row in rows):
        raise ValueError(
            f"The table of groups {file} must have the columns {FILE},{GROUP}, with a line such as "
            f"cat/1.jpg,patient7 for each image; or also {SPLIT}. Received: {','.join(head)!r}"
        )
    rows = [[cell.strip() for cell in row] for row in rows]
    if empty := [",".join(row) for row in rows if not all(row)]:
        raise ValueError(f"The table of groups {file} has lines with empty cells: {first_names(empty)}")
    if not rows:
        raise ValueError(f"The table of groups {file} has no lines below {','.join(head)}.")
    columns = {name: {row[0]: row[place] for row in rows} for place, name in enumerate(head)}
    if len(columns[FILE]) < len(rows):
        twice = [name for name, count in Counter(row[0] for row in rows).items() if count > 1]
        raise ValueError(f"The table of groups {file} has files twice: {first_names(twice)}")
    return ImageTable(columns.get(GROUP, {}), columns.get(SPLIT, {}))


def check_groups(path: str, splits: Mapping[str, list[tuple[str, str]]], groups: Mapping[str, str], fix: str):
    """Raises ValueError if a group has images in several splits, each a list of (class, file); {} is no groups."""
    split_of: dict[str, str] = {}
    both = {
        groups[file]: (split, split_of[groups[file]])
        for split, images in splits.items()
        for _, file in images
        if groups and split_of.setdefault(groups[file], split) != split
    }
    if both:
        first, second = next(iter(both.values()))
        have = "group of {} has" if len(both) == 1 else "groups of {} have"
        raise ValueError(
            f"{len(both):,} {have.format(path)} images in several splits, such as {second!r} and {first!r}: "
            f"{first_names(sorted(both))}. {fix}"
        )
