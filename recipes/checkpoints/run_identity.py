"""Which run a folder has: the id in its checkpoints, its data, and the lock of the process that trains there."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import tensorflow as tf

from keras_vit.class_names import describe_difference
from keras_vit.recipes.agreement import check_equal, check_same_recipe
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints, has_run, required_folder
from keras_vit.recipes.data import ImageDataset
from keras_vit.recipes.data.arrays import read_arrays
from keras_vit.recipes.data.model_classes import MOST_READ
from keras_vit.recipes.distributed import Workers, choose_strategy
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.recipe_checks import check_plan
from keras_vit.recipes.recipe_errors import check_all
from keras_vit.recipes.remote_files import write_file
from keras_vit.recipes.training.checks import check_recipe, count_images
from keras_vit.recipes.watch import Watch
from keras_vit.weights.files import RECIPE, RUN

VARIABLE = "run/.ATTRIBUTES/VARIABLE_VALUE"  # in a checkpoint, see `Checkpoints`


@dataclass(frozen=True)
class RunIdentity:
    """The identity of a run, in run.json beside recipe.json and in each checkpoint.

    Args:
        id: Of the run; a resumed run keeps it.
        class_names: Names of the classes, in the order of the outputs; none for training without labels.
        images: Number of images of each split that the recipe uses.
        process: Of this start of the run; the next one replaces it in run.json.
        files: A hash of names, sizes and labels of the images of a local folder; "" for other or more images.
        replaced: What replaces parts of the recipe, see `Replacements.fields`.
    """

    id: str
    class_names: tuple[str, ...]
    images: dict[str, int]
    process: str = ""
    files: str = ""
    replaced: dict[str, object] = field(default_factory=dict)

    def text(self) -> str:
        """The part that is the same for every start, as JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "process"})

    def check_checkpoint(self, text: str, path: str):
        """Raises ValueError unless a checkpoint, with the `text` of its run, is of this run and of this data."""
        other = _from_json(text)
        if other is None or other.id != self.id:
            raise ValueError(
                f"{path} is of another run: its id is {other.id if other else 'unknown'}, that of this folder is "
                f"{self.id}. Move the checkpoints of the other run out of the folder, or choose another folder."
            )
        self.check_data(other, os.path.dirname(path))

    def check_data(self, other: "RunIdentity", folder: str):
        """Raises ValueError unless data and replacements are those with which the run in the folder began, `other`."""
        for name in {**other.replaced, **self.replaced}:
            there, here = (identity.replaced.get(name, "that of the recipe") for identity in (other, self))
            if there != here:
                raise ValueError(
                    f"The run in {folder} has another {name}: {there} (there), {here} (here). Resume it by keras_vit."
                    "recipes.train with the arguments of its beginning, or start a new run in another folder."
                )
        differences = []
        if names := describe_difference(other.class_names, self.class_names):
            differences.append(f"the classes ({names})")
        for split in {**other.images, **self.images}:
            before, now = other.images.get(split, 0), self.images.get(split, 0)
            if before != now:
                differences.append(f"the images of {split!r} ({before:,} there, {now:,} here)")
        if not differences and self.files and other.files and self.files != other.files:
            differences.append("the files or their classes, of which there are as many")
        if differences:
            raise ValueError(
                f"The data is not that of the run in {folder}: it differs in {', '.join(differences)}. Restore the "
                "data, or start a new run in another folder."
            )

    def check_owner(self, folder: str):
        """Raises OSError if another process has started this run since, which a lock cannot prevent on gs://."""
        try:
            current = read_identity(folder)
        except tf.errors.OpError:  # the checkpoint that is written next reports it
            return
        if current is not None and current.process != self.process:
            raise OSError(
                f"Another process has started a run in {folder}, so this one ends without saving. Train in one "
                "process at a time, or choose another folder: set run.folder."
            )


def begin_run(
    recipe: Recipe, dataset: ImageDataset, workers: Workers, replaced: dict[str, object] | None = None
) -> RunIdentity:
    """Identifies the run in a recipe's folder, which must be locked, and writes its run.json.

    If run.json is missing or damaged, for example by a power failure, the newest checkpoint has the id.
    """
    folder = required_folder(recipe)
    names = dataset.class_names if recipe.has_labels else ()
    files = _hash_of_files(recipe, dataset)
    images = count_images(recipe, dataset)
    current = RunIdentity(uuid.uuid4().hex, names, images, uuid.uuid4().hex, files, replaced or {})
    failure = None
    if workers.chief:
        try:
            if has_run(folder) and (previous := read_identity(folder) or _of_newest_checkpoint(folder)):
                current.check_data(previous, folder)
                current = replace(current, id=previous.id)
            write_file(os.path.join(folder, RUN), json.dumps(asdict(current), indent=2) + "\n")
        except (ValueError, OSError) as error:
            failure = error
    if workers.any(failure is not None):
        raise failure or ValueError(f"The chief worker cannot resume the run in {folder}: see its message.")
    return current if workers.chief else read_identity(folder) or current


def check_unchanged(recipe: Recipe, dataset: ImageDataset):
    """Raises ValueError if classes, image counts or files changed since the run in the recipe's folder was started."""
    folder = required_folder(recipe)
    if began := read_identity(folder):
        images, files = count_images(recipe, dataset), _hash_of_files(recipe, dataset)
        now = replace(began, class_names=dataset.class_names, images=images, files=files)
        now.check_data(began, folder)


def check_same_data(recipe: Recipe, dataset: ImageDataset, workers: Workers):
    """Raises ValueError in all processes unless all read the same data; it compares what a `RunIdentity` has."""
    if workers.several:
        classes = {"the number of classes": len(dataset.class_names), "the classes": dataset.class_names}
        images, files = count_images(recipe, dataset), _hash_of_files(recipe, dataset)[:16]
        check_equal({**classes, "the images of each split": images, "the files (SHA-256)": files}, workers)


def _hash_of_files(recipe, dataset) -> str:
    """See `RunIdentity.files`."""
    folder = os.path.expanduser(dataset.name.partition(":")[2])
    splits = count_images(recipe, dataset)
    if not dataset.stores_paths or "://" in folder or sum(splits.values()) > MOST_READ:
        return ""
    digest = hashlib.sha256()
    for split in splits:
        for paths, labels in read_arrays(dataset, split, lambda name, path, label: (path, label)):
            for path, label in zip(paths, labels):
                file = path.decode()
                known = os.path.relpath(file, folder), os.path.getsize(file) if os.path.isfile(file) else None
                digest.update(repr((*known, label.tolist())).encode())
    return digest.hexdigest()


def read_identity(folder) -> RunIdentity | None:
    """The identity in a folder's run.json; None if the file is missing or damaged."""
    try:
        with tf.io.gfile.GFile(os.path.join(folder, RUN)) as content:
            return _from_json(content.read())
    except (tf.errors.NotFoundError, UnicodeDecodeError):
        return None


def _of_newest_checkpoint(folder):
    for path in find_checkpoints(folder):
        try:
            return _from_json(tf.train.load_variable(path, VARIABLE).decode())
        except (tf.errors.OpError, IndexError, ValueError, RuntimeError):  # damaged: `Checkpoints` reports it
            continue
    return None


def _from_json(text):
    try:
        values = json.loads(text)
        return RunIdentity(**{**values, "class_names": tuple(values["class_names"])})
    except (ValueError, TypeError, KeyError):
        return None


LOCK = ".lock"
BEFORE_TRAINING = {LOCK, RECIPE, RUN}  # what the folder has before its first log and checkpoint
# Errors of file systems without locks, such as some network disks and buckets mounted as a folder.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked_folder(recipe: Recipe, start=None):
    """Checks a recipe, then locks the run's folder for as long as the block runs; yields the strategy."""
    # First, since workers can join only before any operation.
    strategy = choose_strategy(recipe.run.strategy, recipe.run.join_seconds)
    workers = Workers(strategy)
    with Watch(workers, recipe.data.service):
        check_same_recipe(recipe, workers)
        check_all(
            lambda: check_plan(recipe, getattr(start, "patch_size", None)), lambda: check_recipe(recipe, strategy)
        )
        with run_lock(recipe.run.folder, workers):
            yield strategy


@contextmanager
def run_lock(folder: str | None, workers: Workers):
    """Locks a run's folder for as long as the block runs; the chief locks for all workers.

    Folders that it created are removed again after an error or Ctrl-C before the first checkpoint.

    The system releases the lock of a process that ends in any way, so that a killed run never blocks the next one. A
    folder on gs:// has no lock, nor has one on a disk without locks: there, `RunIdentity.check_owner` stops the older
    of two processes at its next checkpoint.
    """
    if folder is None:
        yield
        return
    file, failure = None, None
    missing = [path for path in (Path(folder), *Path(folder).parents) if not os.path.lexists(path)]
    if workers.chief and "://" not in folder:
        try:
            file = _lock(folder)
        except OSError as error:
            failure = error
    if workers.any(failure is not None):  # all workers end, instead of waiting for the chief
        raise failure or OSError(f"The chief worker cannot use the folder {folder}: see its message.")
    try:
        yield
    except BaseException:
        if file and missing:
            _remove_unused(missing)
        raise
    finally:
        if file:
            file.close()


def _remove_unused(folders):
    """Removes the folder of a run that saved nothing, and those around it that were created for it."""
    folder, *parents = folders
    with suppress(OSError):  # the error that ended the run is reported; other runs may use the parents
        if set(os.listdir(folder)) <= BEFORE_TRAINING:
            shutil.rmtree(folder)
            for parent in parents:
                parent.rmdir()


def _lock(folder):
    """The open and locked file, or None on a disk without locks."""
    try:
        os.makedirs(folder, exist_ok=True)
        file = open(os.path.join(folder, LOCK), "a+")
    except OSError as error:
        raise OSError(
            f"The run's folder {folder} cannot be used: {error.strerror}. Check the permissions and the free space, or "
            "choose another folder."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
    except BlockingIOError as error:
        file.seek(0)
        owner = file.read(200) or "another process"
        file.close()
        raise OSError(
            f"The folder {folder} is in use by {owner}. Wait until that run ends, or choose another folder: set "
            "run.folder."
        ) from error
    except OSError as error:
        if error.errno in NO_LOCKS:
            file.close()
            return None
        if error.errno == errno.ENOSPC:  # locked, but without the name of the process
            return file
        file.close()
        raise
    return file
