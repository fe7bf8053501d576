"""The lock of a run's folder: one process, or one group of processes, trains there at a time."""

import errno
import fcntl
import os
import shutil
import socket
from contextlib import contextmanager, suppress
from pathlib import Path

from keras_vit.recipes.processes.workers import Workers
from keras_vit.weights.files import RECIPE, RUN

LOCK = ".lock"
BEFORE_TRAINING = {LOCK, RECIPE, RUN}  # what the folder has before its first log and checkpoint
# Errors of file systems without locks, such as some network disks and buckets mounted as a folder.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def run_lock(folder: str | None, workers: Workers):
    """Locks a run's folder for as long as the block runs; the chief locks for all workers.

    Folders that it created are removed again after an error or Ctrl-C before the first checkpoint.

    The system releases the lock of a process that ends in any way, so that a killed run never blocks the next one. A
    folder on gs:// has no lock, nor has one on a disk without locks: there, `check_owner` of folder.py stops the older
    of two processes at its next checkpoint.
    """
    if folder is None:
        yield
        return
    file = None
    missing = [path for path in (Path(folder), *Path(folder).parents) if not os.path.lexists(path)]
    with workers.failing_together(OSError(f"The chief worker cannot use the folder {folder}: see its message.")):
        if workers.chief and "://" not in folder:
            file = _lock(folder)
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
