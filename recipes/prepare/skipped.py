"""Reports of the skipped images and the reasons: a CSV file for each reason and split."""

import csv
from dataclasses import dataclass

from etils import epath

from keras_vit.recipes.prepare.outcomes import DUPLICATE, UNREADABLE

FILES = {UNREADABLE: "unreadable-{}.csv", DUPLICATE: "duplicates-{}.csv"}
COLUMNS = {UNREADABLE: ("image", "error"), DUPLICATE: ("image", "copy_of", "different_bits", "mirrored")}


@dataclass(frozen=True)
class Counts:
    """Numbers of a split's skipped and stored images and of its files; the last two are None after a dry run."""

    unreadable: int
    duplicates: int
    stored: int | None = None
    shards: int | None = None


def write_skipped(skipped: list, split: str, folder: epath.Path):
    """Writes both reports of a split, sorted by the images' names.

    Args:
        skipped: What `outcomes.examine` returned for these images.
        split: Name in the names of the files.
        folder: Created if necessary.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for reason, columns in COLUMNS.items():
        rows = sorted((name, *details) for outcome, name, details in skipped if outcome == reason)
        with (folder / FILES[reason].format(split)).open("w") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def count_skipped(split: str, folder: epath.Path) -> Counts:
    """Reads the reports of a split."""
    counts = {}
    for reason, name in FILES.items():
        with (folder / name.format(split)).open() as file:
            counts[reason] = sum(1 for _ in csv.reader(file)) - 1
    return Counts(counts[UNREADABLE], counts[DUPLICATE])
