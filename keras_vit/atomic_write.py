"""Local files and folders that appear, or replace older ones, only when they are complete; and names of folders."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OLD = ".keras-vit-old"  # in a temporary folder: what was there before, while it is replaced


@contextmanager
def naming_full_disk(path, written=None) -> Iterator[None]:
    """Names a file or folder in an error of a full disk: the system's error of writing names none.

    Args:
        path: What is written in the block, as the user knows it.
        written: A temporary folder that the user does not know, if it is written there first.
    """
    try:
        yield
    except OSError as error:
        named = str(error.filename or "")
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and (not named or (written and named.startswith(str(written)))):
            error.filename = str(path)
        raise


def temporary_name(path) -> str:
    """The start of the names of temporary folders beside a file or folder."""
    return f".{path.name[:40]}.keras-vit-"  # up to 160 of the 255 bytes that a disk allows


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yields a new hidden folder beside a file or folder; at the end it is removed.

    So are, at the start, those that killed processes have left for the same path. A process has a lock on its folder,
    which the system releases when the process ends in any way.
    """
    for name in os.listdir(path.parent):
        if re.fullmatch(f"{re.escape(temporary_name(path))}[a-z0-9_]{{8}}", name):
            _remove_left(path.with_name(name), path)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=temporary_name(path), dir=path.parent))
        descriptor = _lock(folder)
        if folder.exists():  # another process may have removed it before it was locked
            break
    try:
        yield folder
    finally:
        _remove(folder, path)
        if descriptor is not None:
            os.close(descriptor)


def _lock(folder: Path, wait: bool = True) -> int | None:
    """Locks a folder; None if another process has it or the disk, or Windows, has no such locks."""
    with suppress(OSError, ImportError):
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            os.close(descriptor)
    return None


def _remove_left(folder, path):
    descriptor = _lock(folder, wait=False)
    if descriptor is not None:
        _remove(folder, path)
        os.close(descriptor)


def _remove(folder, path):
    """Removes a temporary folder; what it replaces goes back unless the replacement is complete."""
    if (folder / OLD).exists() and not path.exists():
        os.replace(folder / OLD, path)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def new_files(*paths: Path) -> Iterator[list[Path]]:
    """Yields where to write each of the files or folders; they are moved to `paths` at the end.

    Nothing is left behind if the block raises. The paths share one folder, which must exist. A link remains, and what
    it leads to is replaced.
    """
    targets = [Path(os.path.realpath(path)) for path in paths]
    with temporary_folder(targets[0]) as folder, naming_full_disk(paths[0].absolute()):
        written = [folder / path.name for path in paths]
        yield written
        for source, target in zip(written, targets):
            os.replace(source, target)


def replace_folder(new, target, old, kept, check: Callable[[], None]):
    """Moves a complete folder to its place, and the one that was there to `old`; paths of this machine or a bucket.

    Raises:
        ValueError: `check` raised one, since something else wrote to the target in the meantime, or it cannot be
            replaced. The new folder is then `kept`.
    """
    try:
        check()
        if target.exists():
            target.rename(old)
        new.rename(target)
    except (ValueError, OSError) as error:
        new.rename(kept)
        written = "something else wrote to it in the meantime"
        reason = written if isinstance(error, ValueError) else error.strerror or error
        raise ValueError(f"{target} is not replaced: {reason}. The result is complete in {kept}.") from error


def write_file(path, content: bytes | str):
    """Writes a file, text as UTF-8, or into a pipe or device; its folder must exist."""
    encoded, path = content.encode() if isinstance(content, str) else content, Path(path)
    if path.exists() and not path.is_file():
        path.write_bytes(encoded)
        return
    with new_files(path) as (file,):
        file.write_bytes(encoded)


@contextmanager
def literal_folder(folder) -> Iterator[str]:
    """Yields a path of an existing folder that TensorFlow does not take for a pattern, a link where its name is one.

    TensorFlow looks for the variables of checkpoints and SavedModels by a glob, so that it does not find them in a
    folder "a [1]", or finds those of another.
    """
    path = str(folder)
    if "://" in path or not any(character in path for character in "*?[\\"):
        yield path
        return
    with tempfile.TemporaryDirectory() as parent:
        link = os.path.join(parent, "folder")
        os.symlink(os.path.abspath(path), link)
        yield link
