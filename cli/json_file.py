"""The --json option of several commands."""

from pathlib import Path


def check_json(file: Path | None):
    """Raises ValueError if the file of --json cannot be written. Called before anything is computed."""
    if file and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise ValueError(f"--json requires a file in an existing folder. Received: {file}")
