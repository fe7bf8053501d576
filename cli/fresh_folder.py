"""A folder of results that appears, or replaces an older one, only when it is complete."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_replaceable(folder: Path, mark: str | None = None):
    """Raises ValueError if there is something that may not be replaced.

    Args:
        folder: It may be missing or empty.
        mark: A file that only the command itself writes: a folder that holds one is a former result, and may go.
    """
    if mark and (folder / mark).is_file():
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder.absolute()} is a file; choose another --output.")
    if folder.exists() and any(folder.iterdir()):
        why = f", and it holds no {mark} of a former run" if mark else ""
        raise ValueError(f"{folder.absolute()} exists and is not empty{why}; choose another --output.")


@contextmanager
def fresh_folder(folder: Path, mark: str | None = None) -> Iterator[Path]:
    """Gives a new folder beside `folder`; it takes its place when the block ends well, else it is removed.

    Args:
        folder: See `check_replaceable`, which raises ValueError.
        mark: Likewise.
    """
    folder = folder.absolute()
    check_replaceable(folder, mark)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        new = aside / "new"
        new.mkdir()
        yield new
        if folder.exists():
            os.replace(folder, aside / "old")
        os.replace(new, folder)
    finally:
        if not folder.exists() and (aside / "old").exists():
            os.replace(aside / "old", folder)
        shutil.rmtree(aside, ignore_errors=True)
