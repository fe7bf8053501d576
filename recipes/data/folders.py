"""What lies in a folder of images, local or wherever `tf.io.gfile` reads, such as gs://."""

from collections.abc import Iterator

import tensorflow as tf


def folders(path: str) -> list[str]:
    """Sorted names of the folders in a folder, hidden ones left out."""
    names = tf.io.gfile.listdir(path)
    remote = "://" in path  # object stores mark folders by "/", and asking them for each name takes long
    found = [n for n in names if n.endswith("/") or (not remote and tf.io.gfile.isdir(tf.io.gfile.join(path, n)))]
    return sorted(name.rstrip("/") for name in found if not name.startswith("."))


def files(name: str, path: str) -> list[str]:
    """Sorted "name/file" of everything in the folder `name` of `path`, hidden files left out."""
    inside = tf.io.gfile.listdir(tf.io.gfile.join(path, name))
    return sorted(f"{name}/{file}" for file in inside if file.strip("/") and file[0] != ".")


def files_below(path: str) -> Iterator[str]:
    """As `files`, of all folders at any depth: paths relative to `path`, in a fixed order."""
    for folder, _, names in tf.io.gfile.walk(path):
        within = folder[len(path) :].strip("/")
        for name in sorted(names):
            if not name.startswith("."):
                yield f"{within}/{name}" if within else name
