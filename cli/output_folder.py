"""The output of a command: its folder, which appears, or replaces a previous run's, when it is complete; --json."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from keras_vit.atomic_write import OLD, naming_full_disk, replace_folder, temporary_folder


def check_replaceable(folder: Path, mark: str | None = None, option: str = "--output"):
    """Raises a ValueError unless a folder is missing, empty, or the result of a previous run.

    That has the file `mark`, which only the command itself writes. `option` names the folder.
    """
    if os.path.ismount(folder):
        raise ValueError(f"{folder.absolute()} is a mount point, which cannot be replaced; choose {option} inside it.")
    if mark is None:
        _check_not_around(folder, option)
    if mark and (folder / mark).is_file():
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder.absolute()} is a file; choose another {option}.")
    if folder.exists() and any(folder.iterdir()):
        reason = f" and contains no {mark} of a previous run" if mark else ""
        raise ValueError(f"{folder.absolute()} is not empty{reason}; choose another {option}.")


def check_table(path: Path, option: str = "--output"):
    """Raises ValueError unless a table can be written there: "folder/", of which the path is "folder", is none."""
    if path.suffix.lower() != ".csv" or path.is_dir() or not path.absolute().parent.is_dir():
        raise ValueError(
            f"{option} is a .csv file in a folder that exists, such as predictions.csv. Received: {path.absolute()}"
        )


def _check_not_around(folder, option):
    """Raises ValueError for the current folder or one around it: in its place, the shell would be in a deleted one."""
    if Path.cwd().is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"{folder.absolute()} is or contains the current folder; choose another {option}.")


def create_folder(folder: Path, option: str = "--output"):
    """Creates the folder of an option with its parents; raises a ValueError that names the option if it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be created ({error.strerror}); choose another {option}.") from error


@contextmanager
def new_folder(folder: Path, mark: str | None = None, option: str = "--output") -> Iterator[Path]:
    """Yields an empty folder that takes the place of `folder` at the end; it is removed if the block raises.

    Raises:
        ValueError: See `check_replaceable` and `create_folder`. If `folder` may no longer be replaced at the end, or
            cannot be, the new folder stays beside it.
    """
    folder = Path(os.path.realpath(folder))  # a link remains
    _check_not_around(folder, option)
    check_replaceable(folder, mark, option)
    create_folder(folder.parent, option)
    with temporary_folder(folder) as temporary:
        new, kept = temporary / "new", folder.with_name(temporary.name[1:])
        new.mkdir()
        with naming_full_disk(folder, temporary):
            yield new
        replace_folder(new, folder, temporary / OLD, kept, lambda: check_replaceable(folder, mark, option))


@contextmanager
def json_output(wanted: bool) -> Iterator[Callable[[Any, Callable[[], None]], None]]:
    """Yields a function that prints a value as JSON if that is wanted, or else calls its second argument for text.

    With JSON, all else that is printed in the block, also by libraries, goes to standard error.
    """
    output = sys.stdout

    def show(value, print_text):
        if wanted:
            print(json.dumps(value, indent=2), file=output)
        else:
            print_text()

    with redirect_stdout(sys.stderr) if wanted else nullcontext():
        yield show
