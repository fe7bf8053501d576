"""The folder that `keras-vit prepare` reads: its splits and their classes."""

import os
import re
from dataclasses import dataclass

from keras_vit.recipes.data.image_dataset import check_class_names
from keras_vit.recipes.data.image_folder import check_folder, class_of, list_folders, warn_of_similar_names


@dataclass(frozen=True)
class SourceFolder:
    """A folder of images, with the names of each split's classes; if it is flat, /path/<class>/<image> of one split."""

    path: str
    classes: dict[str, list[str]]
    flat: bool

    def split_path(self, split: str) -> str:
        """The folder with the split's classes."""
        return self.path if self.flat else os.path.join(self.path, split)

    def class_names(self) -> list[str]:
        """Classes of all splits, in the order of the labels."""
        return sorted({class_of(name) for name in set().union(*self.classes.values())})


def open_source(path: str, only_split: str | None = None) -> SourceFolder:
    """Lists splits and classes, or the classes of `only_split`; the images are listed when they are read."""
    layout = "<class>/<image>" if only_split else "<split>/<class>/<image>"
    check_folder(path, layout)
    names = list_folders(path)
    classes = {only_split: names} if only_split else {name: list_folders(os.path.join(path, name)) for name in names}
    classes = {split: split_classes for split, split_classes in classes.items() if split_classes}
    if not classes:
        fix = f" If {', '.join(names[:3])} are classes, set --flat: they become one split." if names else ""
        raise ValueError(f"{path} is not laid out as {path}/{layout}.{fix}")
    check_class_names(sorted(set().union(*classes.values())), path)
    warn_of_similar_names(path, set().union(*classes.values()))
    for split in classes:
        if not re.fullmatch(r"\w+", split, re.ASCII) or split.lower() == "all":
            raise ValueError(
                f"The split {split!r} of {path} requires another name: of letters, digits and _, and not 'all'."
            )
    return SourceFolder(path, classes, bool(only_split))
