"""A file that appears, or replaces an older one, only when it is complete."""

import os
from pathlib import Path


def write_file(path: Path, content: bytes):
    """Writes aside, in the same folder, then renames."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
