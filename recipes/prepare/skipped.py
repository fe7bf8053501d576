"""The reports of `keras-vit prepare`: images that were left out, and why, a CSV file for each reason and split."""

import csv
from dataclasses import dataclass

from etils import epath

from keras_vit.recipes.prepare.image_files import DUPLICATE, UNREADABLE

FILES = {UNREADABLE: "unreadable-{}.csv", DUPLICATE: "duplicates-{}.csv"}
COLUMNS = {UNREADABLE: ("image", "error"), DUPLICATE: ("image", "copy_of", "different_bits", "mirrored")}


@dataclass(frozen=True)
class Counts:
    """What became of a split's images; `kept` and `shards` are None after a dry run."""

    unreadable: int
    duplicates: int
    kept: int | None = None
    shards: int | None = None


def write_left_out(left_out: list, split: str, folder: epath.Path):
    """Writes both reports of a split, in the order of the images' names.

    Args:
        left_out: What `image_files.examine` returned for them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for reason, columns in COLUMNS.items():
        rows = sorted((name, *result) for outcome, name, result in left_out if outcome == reason)
        with (folder / FILES[reason].format(split)).open("w") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def count_left_out(split: str, folder: epath.Path) -> Counts:
    """Reads the reports of a split."""
    rows = {}
    for reason, name in FILES.items():
        with (folder / name.format(split)).open() as file:
            rows[reason] = sum(1 for _ in csv.reader(file)) - 1
    return Counts(rows[UNREADABLE], rows[DUPLICATE])
