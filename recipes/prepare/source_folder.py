"""The source of `keras-vit prepare`: the splits and classes of a folder of images, from the names of its folders."""

import os
import re
from dataclasses import dataclass

from keras_vit.recipes.data.image_folder import check_folder, list_folders


@dataclass(frozen=True)
class SourceFolder:
    """A folder of images.

    Args:
        path: The folder.
        classes: Names of each split's classes.
        flat: The layout is /path/<class>/<image>, with one split, and not /path/<split>/<class>/<image>.
    """

    path: str
    classes: dict[str, list[str]]
    flat: bool

    def split_path(self, split: str) -> str:
        """The folder with the split's classes."""
        return self.path if self.flat else os.path.join(self.path, split)

    def class_names(self) -> list[str]:
        """Classes of all splits, in the order of the labels."""
        return sorted(set().union(*self.classes.values()))


def open_source(path: str, only_split: str | None = None) -> SourceFolder:
    """Lists splits and classes; the images are listed when they are read.

    Args:
        path: The folder.
        only_split: Name of the only split if `path` has classes; None if it has splits.

    Raises:
        ValueError: The folder is missing or has another layout.
    """
    layout = "<class>/<image>" if only_split else "<split>/<class>/<image>"
    check_folder(path, layout)
    names = list_folders(path)
    classes = {only_split: names} if only_split else {name: list_folders(os.path.join(path, name)) for name in names}
    classes = {split: split_classes for split, split_classes in classes.items() if split_classes}
    if not classes:
        fix = f" If {', '.join(names[:3])} are classes, set --flat: they become one split." if names else ""
        raise ValueError(f"{path} is not laid out as {path}/{layout}.{fix}")
    for name in set().union(*classes.values()):
        if name.splitlines() != [name]:
            raise ValueError(f"The class name {name!r} of {path} is not one line of text. Rename its folder.")
    for split in classes:
        if not re.fullmatch(r"\w+", split, re.ASCII) or split.lower() == "all":
            raise ValueError(
                f"The split {split!r} of {path} requires another name: of letters, digits and _, and not 'all'."
            )
    return SourceFolder(path, classes, bool(only_split))
