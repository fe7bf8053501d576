"""The folder of temporary files, which TensorFlow, exports and downloads require. Standard library only."""

import os
import tempfile

TRIAL_BYTES = 1 << 20


def temporary_folder() -> str:
    """The folder that the environment names, even if it is missing or full, else the system's."""
    for name in ("TMPDIR", "TEMP", "TMP"):  # in the order of `tempfile`, which tries the others silently
        if os.environ.get(name):
            return os.environ[name]
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # no folder can be written
        return "/tmp"


def temporary_folder_problem() -> str | None:
    """Why no files can be written to the folder of temporary files, or None. Writes a file of 1 MiB and removes it."""
    folder = temporary_folder()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(TRIAL_BYTES))
            file.flush()
    except FileNotFoundError:
        return f"The folder of temporary files {folder} does not exist"
    except OSError as error:
        return f"The folder of temporary files {folder} cannot be written: {error.strerror}"
    return None


def check_temporary_folder():
    """Raises OSError if no temporary files can be written: later, errors of TensorFlow would not say so."""
    if problem := temporary_folder_problem():
        raise OSError(f"{problem}. Free some space there, or set TMPDIR to another folder: export TMPDIR=/path")
