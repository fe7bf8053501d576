"""The file that --json names."""

from pathlib import Path


def check_json(file: Path | None):
    """Raises ValueError if the file cannot be written; called before anything is computed for it. None is no file."""
    if file and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise ValueError(
            f"--json {file} is a folder, or is in none that exists. Name a file in a folder that is there."
        )
