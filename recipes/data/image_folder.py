"""Folders of images, /path/<split>/<class>/<image>, local or wherever `tf.io.gfile` reads, such as gs://."""

import numpy as np
import tensorflow as tf

from keras_vit.recipes.data.folders import files, folders
from keras_vit.recipes.data.splits import parts

ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")


def open_folder(path: str) -> tuple:
    """Lists the images of a folder.

    The order of a split's images is drawn once and for all, so that a part such as "train[:98%]" is not of the first
    classes only.

    Returns:
        Class names (of all splits, sorted), splits and `read` of a `ImageDataset` of files.

    Raises:
        ValueError: There is no such folder, or it is not laid out as /path/<split>/<class>/<image>.
    """
    if not path or not tf.io.gfile.isdir(path):
        raise ValueError(f"There is no folder {path!r}. Give one with /path/<split>/<class>/<image>.")
    found = {split: _images(tf.io.gfile.join(path, split)) for split in folders(path)}
    found = {split: images for split, images in found.items() if images}
    if not found:
        raise ValueError(
            f"{path} is not laid out as /path/<split>/<class>/<image>, for example train/cat/1.jpg and "
            f"test/cat/2.jpg. Images are files that end in {', '.join(ENDINGS)}."
        )
    class_names = tuple(sorted({name for images in found.values() for name, _ in images}))
    numbers = {name: number for number, name in enumerate(class_names)}
    splits = {split: len(images) for split, images in found.items()}

    def read(split):
        chosen = []
        for name, first, end in parts(splits, split, f"folder:{path}"):
            order = np.random.RandomState(0).permutation(splits[name])[first:end]  # RandomState never changes
            chosen += [(tf.io.gfile.join(path, name, found[name][i][1]), numbers[found[name][i][0]]) for i in order]
        names, labels = zip(*chosen) if chosen else ((), ())
        names = tf.constant(names, tf.string)
        return tf.data.Dataset.from_tensor_slices((names, names, np.array(labels, "int64")))

    return class_names, splits, read


def _images(path):
    """(class, class/image) of a split's folder, sorted."""
    return [(name, file) for name in folders(path) for file in files(name, path) if file.lower().endswith(ENDINGS)]
