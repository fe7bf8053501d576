"""Local files and folders that appear, or replace older ones, only when they are complete."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_files(*paths: Path) -> Iterator[list[Path]]:
    """Yields where to write each of the files or folders; they are moved to `paths` at the end.

    Nothing is left behind if the block raises. The paths share one folder, which must exist.
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
