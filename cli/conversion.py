"""Images that TensorFlow does not read: `finetune` stores them once in its run's folder, as `prepare` does."""

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

import tensorflow as tf

from keras_vit.images.decoding import JPEG, PNG, decode
from keras_vit.images.rgb import open_image
from keras_vit.messages import first_names
from keras_vit.progress import Progress
from keras_vit.recipes.data.folder_layout import EXTENSIONS, converted_files
from keras_vit.recipes.data.image_folder import walk_files
from keras_vit.recipes.prepare.outcomes import encode, map_in_threads
from keras_vit.recipes.recipe.file import read_run
from keras_vit.weights.files import CONVERTED, RECIPE
from keras_vit_cli.image_files import pillow_extensions

DEPTHS = (1, 2, 3)  # of images: in classes, in splits, and in a single folder in the folder


def convert_images(folder: Path, output: Path) -> tuple[str | None, list[str]]:
    """Stores the files of a folder that Pillow reads and TensorFlow does not, unless they are stored already.

    A file in output/converted has the name of the original and, after it, .png or .jpg: it is what `prepare` stores.

    Returns:
        `Data.converted`, or None if there are no such files; and notes, one sentence each.
    """
    store = output / CONVERTED
    files = _convert(folder, store)
    if not files:
        return None, []
    are = "file that TensorFlow does not read is" if len(files) == 1 else "files that TensorFlow does not read are"
    return str(store), [f"{len(files):,} {are} stored in {store}: {first_names(files)}"]


def _convert(folder: Path, store: Path) -> list[str]:
    """The files of a folder that are stored."""
    files = [file for file in walk_files(str(folder)) if file.count("/") in DEPTHS]
    stored = converted_files(str(store))
    progress, kept = Progress("Reading files", len(files), "files"), []
    for file, is_stored in zip(files, map_in_threads(_store, files, folder, store, stored)):
        kept += [file] * is_stored
        progress.add(1)
    progress.end()
    return kept


@functools.cache
def converted_images(model: str, dataset: str) -> str | None:
    """`Data.converted` for a command that reads a local folder; None if TensorFlow reads all of it.

    It is that of the run that the model, or a file exported from it, is of, if one of its files has the time of that in
    the dataset: the run may have been started elsewhere. Otherwise a temporary folder, until the process ends.
    """
    source, _, path = dataset.partition(":")
    folder = Path(path).expanduser()
    if source != "folder" or not folder.is_dir():
        return None
    converted = _converted_by_run(Path(model))
    for file, stored in converted_files(converted).items():
        if (folder / file).is_file() and (folder / file).stat().st_mtime_ns == os.stat(stored).st_mtime_ns:
            return converted
    temporary = tempfile.mkdtemp(prefix="keras_vit-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return temporary if _convert(folder, Path(temporary)) else None


def _converted_by_run(model: Path) -> str | None:
    run = next((folder for folder in (model, *model.parents[:2]) if (folder / RECIPE).is_file()), None)
    try:
        return read_run(run).data.converted if run else None
    except (OSError, ValueError):  # a recipe of another version
        return None


def _store(file: str, folder: Path, store: Path, stored: dict[str, str]) -> bool:
    """Stores a file if that is required; False for what is trained on as it is, or is no image.

    In place of a damaged image there is an empty file, which is then skipped as a damaged PNG file is.
    """
    source, before = folder / file, Path(stored[file]) if file in stored else None
    if not source.is_file() or _is_read(source):
        if before:  # of another file with this name
            before.unlink()
        return False
    changed = source.stat().st_mtime_ns
    if before and before.stat().st_mtime_ns == changed:
        return True
    try:
        open_image(source).close()
        content = encode(source.read_bytes())
    except Exception:  # Pillow's readers raise errors of many kinds
        if source.suffix.lower() not in pillow_extensions().difference(EXTENSIONS):
            return False
        content = b""
    if before:
        before.unlink()
    target = store / f"{file}{'.jpg' if content.startswith(JPEG) else '.png'}"
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}")
    unfinished.write_bytes(content)
    os.utime(unfinished, ns=(changed, changed))
    unfinished.replace(target)
    return True


def _is_read(file: Path) -> bool:
    """Whether training reads a file: by its name, and by its content if not all files of the format are read."""
    if not file.name.lower().endswith(EXTENSIONS):
        return False
    with file.open("rb") as opened:
        if opened.read(8).startswith((JPEG, PNG)):
            return True
        opened.seek(0)
        content = opened.read()
    try:
        decode(tf.constant(content))
    except tf.errors.OpError:
        return False
    return True
