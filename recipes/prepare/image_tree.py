"""Splits and classes of a folder of images, from the names of its folders."""

import os
import re
from dataclasses import dataclass

from etils import epath

from keras_vit.recipes.data.folders import folders


@dataclass(frozen=True)
class ImageTree:
    """A folder of images, /path/<split>/<class>/<image>, or /path/<class>/<image> with the name of its split."""

    path: str
    classes: dict[str, list[str]]  # of each split
    flat: bool

    def split_path(self, split: str) -> str:
        """The folder that holds the split's classes."""
        return self.path if self.flat else os.path.join(self.path, split)

    def class_names(self) -> list[str]:
        """Of all splits, sorted: the order of the class numbers."""
        return sorted(set().union(*self.classes.values()))


def open_tree(path: str, only_split: str | None = None) -> ImageTree:
    """Lists splits and classes; the images are listed when they are read.

    Args:
        only_split: None where `path` holds splits; where it holds classes, the name that their split gets.

    Raises:
        ValueError: The folder is missing or laid out otherwise.
    """
    if not epath.Path(path).is_dir():
        raise ValueError(f"There is no folder {path}. Give one with {path}/<split>/<class>/<image>.")
    names = folders(path)
    classes = {only_split: names} if only_split else {name: folders(os.path.join(path, name)) for name in names}
    classes = {split: found for split, found in classes.items() if found}
    if not classes:
        layout = "<class>/<image>" if only_split else "<split>/<class>/<image>"
        remedy = f" If {', '.join(names[:3])} are classes, say --flat: they become one split." if names else ""
        raise ValueError(f"{path} is not laid out as {path}/{layout}.{remedy}")
    for split in classes:
        if not re.fullmatch(r"\w+", split, re.ASCII) or split.lower() == "all":
            raise ValueError(
                f"The split {split!r} of {path} needs another name: of letters, digits and _, and not 'all'."
            )
    return ImageTree(path, classes, bool(only_split))
