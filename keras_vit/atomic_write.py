"""Local files and folders that appear, or replace older ones, only when they are complete; and names of folders."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


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


def short_prefix(name: str) -> str:
    """The start of the name of a temporary folder: a name with more than that may be longer than a disk allows."""
    return f".{name[:40]}-"  # up to 160 of 255 bytes


@contextmanager
def new_files(*paths: Path) -> Iterator[list[Path]]:
    """Yields where to write each of the files or folders; they are moved to `paths` at the end.

    Nothing is left behind if the block raises. The paths share one folder, which must exist. A link remains, and what
    it leads to is replaced.
    """
    targets = [Path(os.path.realpath(path)) for path in paths]
    temporary = tempfile.TemporaryDirectory(prefix=short_prefix(paths[0].name), dir=targets[0].parent)
    with temporary as folder, naming_full_disk(paths[0].absolute()):
        written = [Path(folder) / path.name for path in paths]
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
