"""Files that are whole or not there."""

import os
import uuid

import tensorflow as tf

from keras_vit.recipes.reason import reason


def write_file(file, content: bytes | str):
    """Writes a file, which may be on gs://, aside and renames it; its folder must be there.

    Raises:
        OSError: The file cannot be written, and what was there before still is.
    """
    folder, name = os.path.split(str(file))
    aside = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")  # workers on other machines may share a process id
    try:
        with tf.io.gfile.GFile(aside, "wb") as out:
            out.write(content)
        tf.io.gfile.rename(aside, str(file), overwrite=True)
    except BaseException as error:
        if tf.io.gfile.exists(aside):
            tf.io.gfile.remove(aside)
        if isinstance(error, tf.errors.OpError):
            raise OSError(f"{file} cannot be written: {reason(error)}. Mend the access to it, or make room.") from error
        raise
