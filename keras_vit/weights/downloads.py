"""The cache of published checkpoints: a file is whole or not there."""

import os
import time
import zipfile
import zlib
from pathlib import Path
from urllib.error import HTTPError

import keras

from keras_vit.cache_dir import home
from keras_vit.weights.published import FOLDERS, resolve

STALE_SECONDS = 3600


def cache_path(name: str) -> Path:
    """Where a published checkpoint lies once downloaded: keras_vit/<name>.npz in KERAS_HOME, by default in ~/.keras."""
    return home() / f"{str(name).removesuffix('.npz')}.npz"


def download(name: str) -> Path:
    """Downloads a published checkpoint, with a progress bar, unless it is in the cache already.

    Args:
        name: See `resolve`.

    Returns:
        Its path in the cache, see `cache_path`.

    Raises:
        ValueError: There is no such name.
        FileNotFoundError: The server has no such file.
        ConnectionError: There is no network, or the download broke off; nothing is left behind. The message names the
            address, and the path at which a file put there by hand is found.
        OSError: The cache cannot be written.
    """
    address, path = resolve(name), cache_path(name)
    if address is None:
        prefixes = ", ".join(folder.prefix for folder in FOLDERS)
        raise ValueError(f"{name!r} is not the name of a published checkpoint; these begin with {prefixes}.")
    if not path.is_file():
        _fetch(address, path)
    return path


def _fetch(address, path):
    """Downloads the file at `address` to `path`.

    `keras.utils.get_file` writes straight to its destination, where the half file of a process that was killed is taken
    for the whole one. So it writes aside, and the file takes its name when it has arrived and its checksums are tested.
    The name aside is unique: several processes may fetch the same file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f"{path.name}.*.part"):  # of a killed process; live ones write all the time
        if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
            leftover.unlink(missing_ok=True)
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    remedy = f"Try again, or download {address} by other means and put it at {path}"
    try:
        _download(address, part, remedy)
        if not _is_intact(part):
            raise ConnectionError(f"What came from {address} is not a whole .npz file. {remedy}")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _download(address, part, remedy):
    try:
        keras.utils.get_file(part.name, address, cache_subdir=str(part.parent))
    except Exception as error:  # get_file raises a bare Exception that names the cause in its message
        cause = error.__context__
        if isinstance(cause, HTTPError):
            cause.close()
            if cause.code in (401, 403, 404):  # storage may hide whether a file is there
                raise FileNotFoundError(f"There is no public file at {address}: {error}") from error
        raise ConnectionError(f"The download of {address} failed: {error}. {remedy}") from error


def _is_intact(path) -> bool:
    """Whether it is a zip file, as .npz is, and every member has its checksum."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (zipfile.BadZipFile, EOFError, zlib.error):
        return False
