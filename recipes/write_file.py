"""Files that are whole or not there."""

import os
import uuid

import tensorflow as tf


def write_file(file, content: bytes | str):
    """Writes a file, which may be on gs://, aside and renames it; its folder must be there."""
    folder, name = os.path.split(str(file))
    aside = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")  # workers on other machines may share a process id
    try:
        with tf.io.gfile.GFile(aside, "wb") as out:
            out.write(content)
        tf.io.gfile.rename(aside, str(file), overwrite=True)
    except BaseException:
        if tf.io.gfile.exists(aside):
            tf.io.gfile.remove(aside)
        raise
