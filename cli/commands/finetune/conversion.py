"""Images that TensorFlow does not read: `finetune` stores them once in its run's folder, as `prepare` does."""

import os
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
from keras_vit.weights.files import CONVERTED

DEPTHS = (1, 2, 3)  # of images: in classes, in splits, and in a single folder in the folder
STORED, DAMAGED = "stored", "damaged"


def convert_images(folder: Path, output: Path) -> tuple[str | None, list[str]]:
    """Stores the files of a folder that Pillow reads and TensorFlow does not, unless they are stored already.

    A file in output/converted has the name of the original and, after it, .png or .jpg: it is what `prepare` stores.

    Returns:
        `Data.converted`, or None if there are no such files; and notes, one sentence each.
    """
    store, files = output / CONVERTED, [file for file in walk_files(str(folder)) if file.count("/") in DEPTHS]
    stored = converted_files(str(store))
    progress, outcomes = Progress("Reading files", len(files), "files"), defaultdict(list)
    for file, outcome in zip(files, map_in_threads(_store, files, folder, store, stored)):
        outcomes[outcome].append(file)
        progress.add(1)
    progress.end()
    return str(store) if outcomes[STORED] else None, list(_notes(outcomes, store))


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


def _notes(outcomes: dict, store: Path) -> Iterator[str]:
    if files := outcomes[STORED]:
        yield f"{len(files):,} files that TensorFlow does not read are stored in {store}: {first_names(files)}"
    if files := outcomes[DAMAGED]:
        yield f"{len(files):,} files are damaged, and skipped: {first_names(files)}"
