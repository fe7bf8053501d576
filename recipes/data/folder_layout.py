"""How folders of images are laid out. Without TensorFlow, so that commands check a folder before they start that."""

import functools
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

EXTENSIONS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
HEIC = (".heic", ".heif")
HEIC_FIX = (
    "TensorFlow does not decode HEIC: save such files as JPEG, or use keras-vit finetune, or TFRecords of keras-vit "
    "prepare, which read them after pip install pillow-heif"
)
LABELS_IN_A_FILE = (
    "If a text file has the labels, write them to /path/test.csv, below the line image,label a line for each image, "
    "and the classes in the order of the outputs to /path/labels.txt; the dataset is csv:/path"
)
LEVELS = 2  # of folders in a dataset's: splits and classes


def check_layout(path: str, extensions: tuple[str, ...] = EXTENSIONS):
    """Raises ValueError if a local folder has no images in folders; what else is wrong is found when it is opened.

    Images are files with these extensions; ("",) are all files.
    """
    if any(folder != path for folder in image_folders(path, extensions=extensions)):
        return
    files = (os.path.join(folder, name) for folder, names in walk(path) for name in names)
    raise ValueError(wrong_layout(path, (os.path.relpath(file, path) for file in files)))


def walk(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each local folder from `path` on, also linked ones, and the sorted names of its files, no hidden ones."""
    for folder, folders, names in os.walk(path, followlinks=True):
        around = {os.path.realpath(parent) for parent in (folder, *map(str, Path(folder).parents))}
        # A link to a folder that it is in would never end.
        folders[:] = sorted(name for name in folders if os.path.realpath(os.path.join(folder, name)) not in around)
        yield folder, sorted(name for name in names if not name.startswith("."))


def converted_files(folder: str | None) -> dict[str, str]:
    """What is stored in place of images that TensorFlow does not read: name in the dataset's folder -> path.

    `folder` is that of `Data.converted`: it has files such as cat/1.tif.png, for cat/1.tif.
    """
    if folder is None:
        return {}
    files = (os.path.join(parent, name) for parent, names in walk(folder) for name in names)
    return {os.path.splitext(os.path.relpath(file, folder))[0]: file for file in files}


def image_folders(path: str, levels: int = LEVELS, extensions: tuple[str, ...] = EXTENSIONS) -> Iterator[str]:
    """Yields this folder and those in it, up to some levels, that contain images or cannot be read. Local ones only."""
    try:
        entries = [entry for entry in os.scandir(path) if not entry.name.startswith(".")]
    except OSError:
        yield path
        return
    if any(_is_image(entry.name, extensions) and not entry.is_dir() for entry in entries):
        yield path
    for entry in entries:
        if levels and entry.is_dir():
            yield from image_folders(entry.path, levels - 1, extensions)


def wrong_layout(path: str, files: Iterable[str]) -> str:
    """A message about a folder whose images are not in the folders of classes, with the first image of its files."""
    first = heic = None
    for file in files:
        name = os.path.basename(file)
        if _is_image(name):
            first = file
            break
        heic = heic or (file if name.lower().endswith(HEIC) else None)
    found = f"the first one found is {first}. {LABELS_IN_A_FILE}" if first else "there are none"
    if heic and not first:
        found = f"there are none but {heic}. {HEIC_FIX}"
    return (
        f"{path} is not laid out as /path/<split>/<class>/<image>, for example train/cat/1.jpg and test/cat/2.jpg, or "
        f"as /path/<class>/<image>. Images are files that end in {', '.join(EXTENSIONS)}; {found}."
    )


def _is_image(name: str, extensions: tuple[str, ...] = EXTENSIONS) -> bool:
    return name.lower().endswith(extensions) and not name.startswith(".")


@functools.cache
def log_once(message: str):
    """Logs a warning, once in a process: a run opens its dataset several times."""
    logging.getLogger(__name__).warning(message)
