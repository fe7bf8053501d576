"""A folder of results that appears, or replaces an older one, only when it is complete."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Its presence says that a folder was written here and may be replaced.
MARK = "metrics.json"


def check_replaceable(folder: Path):
    """Raises ValueError if the folder holds something else than a former run's results."""
    if folder.exists() and not (folder / MARK).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"{folder.absolute()} is not empty and holds no {MARK}, so it is not a former run's and is left alone. "
            "Choose another --output."
        )


@contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """Gives a new folder beside `folder`; it takes its place when the block ends well, else it is removed."""
    folder = folder.absolute()
    check_replaceable(folder)
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
