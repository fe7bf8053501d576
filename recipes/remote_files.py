"""Files that may be on gs://, written completely or not at all."""

import os
import uuid

import tensorflow as tf

from keras_vit import atomic_write
from keras_vit.messages import error_summary


def write_file(file, content: bytes | str):
    """Writes a file, local or on gs://, under a temporary name and renames it; its folder must exist.

    Raises:
        OSError: The file cannot be written. A previous file of that name is unchanged.
    """
    try:
        if "://" in str(file):
            _write_remote(str(file), content)
        else:
            atomic_write.write_file(file, content)
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or error_summary(error)
        raise OSError(f"{file} cannot be written: {reason}. Check the permissions and the free space.") from error


def _write_remote(file, content):
    folder, name = os.path.split(file)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")  # workers on other machines may share a process id
    try:
        with tf.io.gfile.GFile(temporary, "wb") as out:
            out.write(content)
        tf.io.gfile.rename(temporary, file, overwrite=True)
    except BaseException:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)
        raise
