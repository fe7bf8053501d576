"""Downloads checkpoints by name, from public storage to a cache, or from the Hugging Face Hub to the Hub's cache."""

import re
import shutil
import time
import zipfile
import zlib
from pathlib import Path
from urllib.error import HTTPError

import keras

from keras_vit.atomic_write import new_files
from keras_vit.cache_dir import cache_dir
from keras_vit.weights.published import FOLDERS, resolve

STALE_SECONDS = 3600
# Without pickled weights (.bin, .pt), which can run code when they are opened.
HUGGING_FACE_FILES = ("config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json")


def cache_path(name: str) -> Path:
    """Where a published checkpoint is stored: keras_vit/<name>.npz in KERAS_HOME, by default ~/.keras."""
    return cache_dir() / f"{str(name).removesuffix('.npz')}.npz"


def download(name: str) -> Path:
    """Downloads a published checkpoint, with a progress bar, unless it is in the cache.

    Args:
        name: See `resolve`.

    Returns:
        Its path in the cache, see `cache_path`.

    Raises:
        ValueError: It is not the name of a published checkpoint.
        FileNotFoundError: The server has no such file.
        ConnectionError: There is no network, or the download was interrupted; nothing is left behind. The message
            has the address, and the path for a file that was downloaded by other means.
        OSError: The cache cannot be written.
    """
    address, path = resolve(name), cache_path(name)
    if address is None:
        prefixes = ", ".join(folder.prefix for folder in FOLDERS)
        raise ValueError(f"{name!r} is not the name of a published checkpoint. These start with {prefixes}.")
    if not path.is_file():
        _fetch(address, path)
    return path


def _fetch(address, path):
    """Downloads a file and checks it before it appears at `path`: `keras.utils.get_file` leaves partial files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(path)
    remedy = f"Try again, or download {address} by other means to {path}"
    with new_files(path) as (file,):
        try:
            keras.utils.get_file(file.name, address, cache_subdir=str(file.parent))
        except Exception as error:  # get_file raises a bare Exception with the cause in its message
            cause = error.__context__
            if isinstance(cause, HTTPError):
                cause.close()
                if cause.code in (401, 403, 404):  # storage may hide whether a file exists
                    raise FileNotFoundError(f"There is no public file at {address}: {error}") from error
            raise ConnectionError(f"Could not download {address}: {error}. {remedy}") from error
        if not _is_intact(file):
            raise ConnectionError(f"The download of {address} is not a complete .npz file. {remedy}")


def _remove_stale(path):
    """Removes partial downloads of killed processes; live ones write all the time."""
    for part in path.parent.glob(f".{path.name}-*/*"):
        if time.time() - part.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(part.parent, ignore_errors=True)


def _is_intact(path) -> bool:
    """Whether it is a zip file, as .npz is, and every member matches its checksum."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (zipfile.BadZipFile, EOFError, zlib.error):
        return False


def download_hugging_face(name: str) -> Path:
    """Downloads the descriptions and .safetensors files of a repository, unless they are cached.

    The cache is that of huggingface_hub (HF_HOME).

    Args:
        name: "hf:owner/name", or "hf:owner/name@revision" with a branch, a tag, a commit or "refs/pr/1".

    Returns:
        The local folder that holds the files.

    Raises:
        ValueError: The name has another form, or the repository has no .safetensors file.
        ModuleNotFoundError: huggingface_hub is not installed.
        ConnectionError: The repository could not be downloaded: no network, no such repository or revision, or no
            access.
    """
    match = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", str(name))
    if not match:
        raise ValueError(
            'Expected "hf:owner/name" or "hf:owner/name@revision" for a checkpoint of the Hugging Face Hub, such as '
            f'"hf:google/vit-base-patch16-224". Received: {name!r}.'
        )
    repository, revision = match.groups()
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name!r} requires huggingface_hub: pip install huggingface_hub") from error
    address = f"https://huggingface.co/{repository}"
    try:
        folder = snapshot_download(repository, revision=revision, allow_patterns=list(HUGGING_FACE_FILES))
    except Exception as error:  # errors of HTTP, the cache and the transfer share no class
        raise ConnectionError(
            f"{name!r} could not be downloaded from {address}: {error} Check the name and the network; a private or "
            "gated repository also requires `hf auth login`. Or download its config.json and .safetensors files to a "
            "folder yourself and pass that folder."
        ) from error
    if not any(Path(folder).glob("*.safetensors")):
        raise ValueError(
            f"{name!r} ({address}) has no .safetensors file. Pickled weights (pytorch_model.bin) can run code and are "
            "never opened. Choose a repository or revision with .safetensors, or convert this one: "
            "https://huggingface.co/docs/safetensors/convert-weights."
        )
    return Path(folder)
