"""Errors of TensorFlow, HDF5, the disk and the memory, as one sentence and what to do."""

import errno
import json
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path

# Errors that keras_vit raises itself: their messages say what to do.
OWN = (ValueError, OSError, ImportError, FloatingPointError)
DISK = "Free some space, or write to another disk."
TEMPORARY = "Free some space there, or set TMPDIR to another disk."
MEMORY = (
    "Use a smaller batch or image: when training, a smaller --data.batch-size, a larger "
    "--optimizer.accumulation-steps, or --run.remat."
)
FILE = "Copy or write the file again; if it is a TFRecord, keras-vit prepare writes new ones."
# Missing packages that keras_vit imports without a message of its own, and what to install.
BACKENDS = {"keras": "keras", "tensorflow": "'vit-for-keras[tensorflow]'", "jax": "jax"}
NO_SPACE = re.compile(r"^(\[Errno \d+\] )?No space left on device[:;, ]*|[:;, ]*No space left on device$")
# What to do about TensorFlow's errors, by the name of their class.
TENSORFLOW = {
    "InvalidArgumentError": "Check the images, labels and sizes that were passed.",
    "DataLossError": f"A file is damaged or truncated. {FILE}",
    "FailedPreconditionError": f"A file or folder is not as expected. {FILE}",
    "OutOfRangeError": f"The data ended too early: a file may be truncated. {FILE}",
    "NotFoundError": "Check the path; another process may have moved or removed it.",
    "PermissionDeniedError": "Check the permissions.",
    "UnauthenticatedError": "Check the credentials.",
    "UnavailableError": "A machine or bucket does not answer: check the network, then try again.",
    "DeadlineExceededError": "A machine or bucket does not answer: check the network, then try again.",
    "AbortedError": "Another worker ended: start all of them again.",
    "CancelledError": "Another worker ended: start all of them again.",
}
LOST_STATE = re.compile("dispatcher restart|Failed to get split: Iteration id")  # which of them depends on the time
RESTARTED = "The tf.data service has lost its state: restart its dispatcher and workers, then resume."
# Lines of TensorFlow's messages that name operations, stack frames or the number of errors.
NOISE = re.compile(r"\s*($|File |Graph execution error|Detected at node|<stack traces|\[\[|\d+ root error|---)")
# Before what happened: the number of an error, operations, a step of tf.data.
PREFIXES = re.compile(
    r"^(\(\d+\) \w+: +|\{\{.*?\}\} *|Error in user-defined function .*?: Iterator::[\w:]+: |assertion failed: )+"
)
TRIAL_BYTES = 1 << 20


def error_sentence(error: Exception, command: str = "") -> str | None:
    """A message for an error that is not a mistake in keras_vit, without a traceback; None for one that may be.

    The error may be raised from such an error, as libraries do. The message names options of the command.
    """
    if sentence := _foreign_sentence(error):
        return sentence
    if isinstance(error, OWN):  # whatever it was raised from
        from keras_vit_cli.recipe_options import error_text

        return error_text(error, command)
    return next((sentence for cause in _causes(error) if (sentence := _foreign_sentence(cause))), None)


def _foreign_sentence(error) -> str | None:
    """A message for an error of TensorFlow, HDF5, the disk or the memory; None for others."""
    if _is_disk_full(error):
        place = getattr(error, "filename", None) or NO_SPACE.sub("", _summary(error))
        fix = TEMPORARY if place == temporary_folder() else DISK
        return f"No space is left on the disk{place and f': {place}'}. {fix}"
    if isinstance(error, MemoryError) or _kind(error) == "ResourceExhaustedError":
        return f"The memory is exhausted: {_summary(error)}. {MEMORY}"
    backend, source = chosen_backend()
    is_missing = isinstance(error, ModuleNotFoundError) and error.name == backend != "tensorflow"
    if is_missing or str(error).startswith("Unable to import backend"):
        install = f", or install it: pip install {backend}" if backend == "jax" else ""
        reason = "is not installed" if is_missing else "does not exist"
        return f"The backend of Keras, {backend!r} in {source}, {reason}. Type export KERAS_BACKEND=tensorflow{install}"
    if isinstance(error, ModuleNotFoundError) and error.name in BACKENDS:
        return f"{error.name} is not installed: pip install {BACKENDS[error.name]}. `keras-vit doctor` checks the rest."
    if isinstance(error, RecursionError):
        return "A file is nested too deeply, or a model too deep, for Python. Check the file that was passed."
    if kind := _kind(error):
        advice = RESTARTED if LOST_STATE.search(str(error)) else TENSORFLOW.get(kind)
        return f"{_summary(error)}. {advice or 'The option --debug prints the traceback.'}"
    if _from_hdf5(error):
        return f"An HDF5 file is damaged: {_summary(error)}. Copy or download it again."
    return None


def chosen_backend() -> tuple[str, str]:
    """The backend that Keras uses, and the variable or file that names it."""
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend, "KERAS_BACKEND"
    file = Path(os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")) / "keras.json"
    try:
        return str(json.loads(file.read_text())["backend"]), str(file)
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow", str(file)


def _causes(error):
    """Yields the errors that it was raised from, or while handling."""
    while error := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        yield error


def _is_disk_full(error) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    # TensorFlow, HDF5 and Beam have only the system's words in their messages. Ours have a fix already.
    return not isinstance(error, OSError) and "no space left on device" in str(error).lower()


def _kind(error) -> str | None:
    """The name of the class of an error of TensorFlow's runtime, else None."""
    tensorflow = sys.modules.get("tensorflow")
    return type(error).__name__ if tensorflow and isinstance(error, tensorflow.errors.OpError) else None


def _from_hdf5(error) -> bool:
    """Whether h5py raised it, but not for a path, of which the system's message says enough."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "h5py" in re.split(r"[/\\]", frames[-1].filename) and not getattr(error, "errno", None)


def _summary(error) -> str:
    """The line of a message that says what happened, without TensorFlow's names of operations and stack traces."""
    lines = str(getattr(error, "message", None) or error).splitlines()
    line = next((line.strip() for line in lines if not NOISE.match(line)), type(error).__name__)
    line = re.sub(r" *\[\[.*| *\[Op:\w+\].*$", "", PREFIXES.sub("", line))
    if line.startswith("[") and line.endswith("]"):  # the parts of an assertion's message
        line = line[1:-1].replace("] [", " ")
    return line.rstrip(".")


def temporary_folder() -> str:
    """The folder that the environment names, even if it is missing or full, else the system's."""
    for name in ("TMPDIR", "TEMP", "TMP"):  # in the order of `tempfile`, which tries the others silently
        if os.environ.get(name):
            return os.environ[name]
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # no folder can be written
        return "/tmp"


def check_temporary_folder():
    """Raises OSError if no temporary files can be written: later, errors of TensorFlow would not say so.

    It writes a file of 1 MiB and removes it.
    """
    folder = temporary_folder()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(TRIAL_BYTES))
            file.flush()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        problem = "does not exist" if missing else f"cannot be written: {error.strerror}"
        fix = "Free some space there, or set TMPDIR to another folder: export TMPDIR=/path"
        raise OSError(f"The folder of temporary files {folder} {problem}. {fix}") from error
