"""Files that may be on gs://: written completely or not at all, and TensorFlow's errors about them in one line."""

import os
import re
import uuid

import tensorflow as tf


def write_file(file, content: bytes | str):
    """Writes a file, local or on gs://, under a temporary name and renames it; its folder must exist.

    Raises:
        OSError: The file cannot be written. A previous file of that name is unchanged.
    """
    folder, name = os.path.split(str(file))
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")  # workers on other machines may share a process id
    try:
        with tf.io.gfile.GFile(temporary, "wb") as out:
            out.write(content)
        tf.io.gfile.rename(temporary, str(file), overwrite=True)
    except BaseException as error:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)
        if isinstance(error, tf.errors.OpError):
            raise OSError(
                f"{file} cannot be written: {error_summary(error)}. Check the permissions and the free space."
            ) from error
        raise


def error_summary(error: BaseException) -> str:
    """The first line of a TensorFlow error, without the names of nodes and operations."""
    line = (str(getattr(error, "message", error)).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*$", "", line)
