"""Images that TensorFlow does not read: `finetune` stores them once in its run's folder, as `prepare` does."""

import atexit
import functools
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
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

DEPTHS = (1, 2, 3)  # of images: in classes, in splits, and in a single folder in the folder
STORED, DAMAGED = "stored", "damaged"


def convert_images(folder: Path, output: Path) -> tuple[str | None, list[str]]:
    """Stores the files of a folder that Pillow reads and TensorFlow does not, unless they are stored already.

    A file in output/converted has the name of the original and, after it, .png or .jpg: it is what `prepare` stores.

    Returns:
        `Data.converted`, or None if there are no such files; and notes, one sentence each.
    """
    store = output / CONVERTED
    outcomes, notes = _convert(folder, store), []
    if files := outcomes[STORED]:
        notes = [f"{len(files):,} files that TensorFlow does not read are stored in {store}: {first_names(files)}"]
    return str(store) if files else None, [*notes, *_notes_on_damaged(outcomes)]


def _convert(folder: Path, store: Path) -> dict[str | None, list[str]]:
    """The files of a folder by outcome, see `_store`."""
    files = [file for file in walk_files(str(folder)) if file.count("/") in DEPTHS]
    stored = converted_files(str(store))
    progress, outcomes = Progress("Reading files", len(files), "files"), defaultdict(list)
    for file, outcome in zip(files, map_in_threads(_store, files, folder, store, stored)):
        outcomes[outcome].append(file)
        progress.add(1)
    progress.end()
    return outcomes


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
    outcomes = _convert(folder, Path(temporary))
    for note in _notes_on_damaged(outcomes):
        print(f"Note: {note}", file=sys.stderr)
    return temporary if outcomes[STORED] else None


def _converted_by_run(model: Path) -> str | None:
    run = next((folder for folder in (model, *model.parents[:2]) if (folder / RECIPE).is_file()), None)
    try:
        return read_run(run).data.converted if run else None
    except (OSError, ValueError):  # a recipe of another version
        return None


def _store(file: str, folder: Path, store: Path, stored: dict[str, str]) -> str | None:
    """Stores a file if that is required; `STORED`, `DAMAGED`, or None for what is trained on as it is, or never."""
    source, before = folder / file, Path(stored[file]) if file in stored else None
    if not source.is_file() or _is_read(source):
        if before:  # of another file with this name
            before.unlink()
        return None
    changed = source.stat().st_mtime_ns
    if before and before.stat().st_mtime_ns == changed:
        return STORED
    try:
        open_image(source).close()
    except Exception:  # no image; of damaged ones, Pillow's readers raise errors of many kinds
        return None
    try:
        content = encode(source.read_bytes())
    except Exception:
        return DAMAGED
    if before:
        before.unlink()
    target = store / f"{file}{'.jpg' if content.startswith(JPEG) else '.png'}"
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}")
    unfinished.write_bytes(content)
    os.utime(unfinished, ns=(changed, changed))
    unfinished.replace(target)
    return STORED


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


def _notes_on_damaged(outcomes) -> Iterator[str]:
    if files := outcomes[DAMAGED]:
        yield f"{len(files):,} files are damaged, and skipped: {first_names(files)}"
