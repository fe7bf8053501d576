"""Files and folders that appear, or replace older ones, only when they are complete. On local file systems."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_files(*paths: Path) -> Iterator[list[Path]]:
    """Yields where to write each of the files, which have one folder; they are moved to `paths` at the end.

    Nothing is left behind if the block raises. The folder must exist.
    """
    with tempfile.TemporaryDirectory(prefix=f".{paths[0].name}-", dir=paths[0].parent) as folder:
        written = [Path(folder) / path.name for path in paths]
        yield written
        for source, path in zip(written, paths):
            os.replace(source, path)


def write_file(path, content: bytes | str):
    """Writes a file, text as UTF-8; its folder must exist.

    Raises:
        OSError: It could not be written; what was there before is unchanged.
    """
    with new_files(Path(path)) as (file,):
        file.write_bytes(content.encode() if isinstance(content, str) else content)


def check_replaceable(folder: Path, mark: str | None = None):
    """Raises a ValueError unless a folder is missing, empty, or the result of a previous run.

    Args:
        folder: The output folder of a command.
        mark: Name of a file that only the command itself writes: a folder that contains it may be replaced.
    """
    if mark and (folder / mark).is_file():
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder.absolute()} is a file; choose another --output.")
    if folder.exists() and any(folder.iterdir()):
        reason = f" and contains no {mark} of a previous run" if mark else ""
        raise ValueError(f"{folder.absolute()} is not empty{reason}; choose another --output.")


@contextmanager
def new_folder(folder: Path, mark: str | None = None) -> Iterator[Path]:
    """Yields an empty folder that takes the place of `folder` at the end; it is removed if the block raises.

    Raises:
        ValueError: See `check_replaceable`.
    """
    folder = folder.absolute()
    check_replaceable(folder, mark)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        yield new
        if folder.exists():
            os.replace(folder, old)
        os.replace(new, folder)
    finally:
        if not folder.exists() and (temporary / "old").exists():
            os.replace(temporary / "old", folder)
        shutil.rmtree(temporary, ignore_errors=True)
