"""Downloads checkpoints by name, from public storage to a cache, or from the Hugging Face Hub to the Hub's cache."""

import hashlib
import os
import re
import socket
import time
import zipfile
from pathlib import Path
from urllib.error import HTTPError, URLError

from keras_vit.atomic_write import new_files
from keras_vit.progress import downloading
from keras_vit.weights.published import FOLDERS, resolve

# A server that sends nothing for this long is given up.
TIMEOUT_S = 60
# Without pickled weights (.bin, .pt), which can run code when they are opened.
HUGGING_FACE_FILES = (
    *("config.json", "preprocessor_config.json", "processor_config.json", "open_clip_config.json"),
    *("*.safetensors", "*.safetensors.index.json"),
)


def cache_dir() -> Path:
    """Absolute path of keras_vit in KERAS_HOME, by default in ~/.keras; it may not exist yet."""
    return Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser().absolute() / "keras_vit"


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
        ConnectionError: There is no network, the server stalled, or the file is damaged. The message has the address,
            and the path for a file that was downloaded by other means.
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
    """Downloads into a folder beside the file, which appears complete, also for several processes at once."""
    fix = f"Try again, or download {address} by other means to {path}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_files(path) as (file,):
            _get_file(address, file)
            if not _is_intact(file):
                raise ConnectionError("what arrived is damaged or incomplete")
    except FileNotFoundError:
        raise
    except (ConnectionError, TimeoutError) as error:
        raise ConnectionError(f"Could not download {address}: {error}. {fix}") from error
    except OSError as error:
        raise OSError(
            f"{address} cannot be saved in {path.parent}: {error}. Set KERAS_HOME to a folder that can be written, or "
            "pass the path of a file."
        ) from error


def _get_file(address, file):
    """`keras.utils.get_file` with a time-out; what it raises for HTTP errors has no class of its own."""
    import keras

    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_S)
    try:
        with downloading(address):
            keras.utils.get_file(file.name, address, cache_dir=file.parent, cache_subdir="")
    except Exception as error:
        cause = error.__context__
        if isinstance(cause, HTTPError):
            cause.close()
        if isinstance(cause, HTTPError) and cause.code in (401, 403, 404):  # storage may hide whether a file exists
            raise FileNotFoundError(f"There is no public file at {address}: {cause}") from error
        if isinstance(cause, URLError):
            raise ConnectionError(cause) from error
        raise
    finally:
        socket.setdefaulttimeout(timeout)


def _is_intact(path) -> bool:
    """Whether it is a zip file, as .npz is, and every member matches its checksum."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except Exception:  # zipfile has no class of errors for damaged files
        return False


def download_hugging_face(name: str) -> Path:
    """Downloads the descriptions and .safetensors files of a repository, unless they are cached.

    The cache is that of huggingface_hub (HF_HOME).

    Args:
        name: "hf:owner/name", or "hf:owner/name@revision" with a branch, a tag, a commit or "refs/pr/1".
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
    address, started = f"https://huggingface.co/{repository}", time.time()
    try:
        folder = snapshot_download(repository, revision=revision, allow_patterns=list(HUGGING_FACE_FILES))
    except Exception as error:  # errors of HTTP, the cache and the transfer share no class
        raise ConnectionError(
            f"{name!r} could not be downloaded from {address}: {error} Check the name and the network; a private or "
            "gated repository also requires `hf auth login`. Or download its config.json and .safetensors files to a "
            "folder yourself and pass that folder."
        ) from error
    _check_hashes(Path(folder), address, started)
    if not any(Path(folder).glob("*.safetensors")):
        raise ValueError(
            f"{name!r} ({address}) has no .safetensors file. Pickled weights (pytorch_model.bin) can run code and are "
            "never opened. Choose a repository or revision with .safetensors, or convert this one: "
            "https://huggingface.co/docs/safetensors/convert-weights."
        )
    return Path(folder)


def _check_hashes(folder, address, started):
    """Holds new files against the SHA-256 that the Hub states, which their names in its cache are."""
    for file in folder.glob("*.safetensors"):
        blob = file.resolve()
        if not re.fullmatch("[0-9a-f]{64}", blob.name) or blob.stat().st_mtime < started - 2:  # checked when it was new
            continue
        with open(blob, "rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        if sha256 != blob.name:
            blob.unlink()
            file.unlink(missing_ok=True)
            raise ConnectionError(
                f"{file.name} of {address} has SHA-256 {sha256}, not {blob.name}, which the Hub states. It was "
                "removed: download it again."
            )
