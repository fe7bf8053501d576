"""Writes a folder of static files in which a .tflite file classifies images in the browser, with LiteRT.js.

LiteRT.js is downloaded from npm, verified and cached: after one call of `fetch_web_runtime()`, exports require no
network.
"""

import base64
import hashlib
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from http.client import HTTPException
from importlib import resources
from pathlib import Path

from keras_vit.atomic_write import new_files, write_file
from keras_vit.export.checks import check_new_folder, checked_class_names
from keras_vit.export.exported.opening import stated_preprocessing
from keras_vit.export.names import ATTENTION, CLASSIFY, INPUT, OUTPUTS
from keras_vit.export.tflite.description import DescribedFile
from keras_vit.export.tflite.metadata import read_description, with_metadata
from keras_vit.weights.downloads import cache_dir

MODEL_FILE = "model.tflite"  # main.js fetches it by this name
EXAMPLES = '<div id="examples" role="group" aria-label="Examples" hidden>'  # in index.html
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")  # formats that every browser decodes


def write_web_page(tflite_path, folder, class_names: Sequence | None = None, examples: Iterable = ()) -> Path:
    """Writes a web page that classifies images in the browser and shows attention maps, without network access.

    The folder has the page, the model and LiteRT.js, 29 MB of which a visitor loads a third. Any static web server can
    serve it under any URL, for example `python3 -m http.server --directory <folder>`. Opened as a file, the page only
    shows that it requires a server. The page reads class names and preprocessing from model.tflite, which another file
    of `write_tflite` may replace.

    Args:
        tflite_path: A file of `write_tflite`, or `with_metadata`, with the signature "classify": `images` (1, H, W, 3),
            or (1, H, W, 1) for gray, pixels in [0, 255] as float32 or uint8, to `probabilities` (1, num_classes). The
            map of a signature "attention", from the same `images` to `attention` (1, h, w) on the patch grid, is drawn
            over the image.
        folder: Folder to write; must not exist.
        class_names: One name per class, or (WordNet id, name) pairs; by default those of the file.
        examples: Paths of example images, .jpg, .png or .webp.

    Returns:
        The folder, which appears once it is complete; index.html is the page.

    Raises:
        ValueError: The folder is not empty, the number of class names differs from the number of classes, an example is
            not an image, or the page cannot run the model.
        FileNotFoundError: The model or an example does not exist.
        ConnectionError: LiteRT.js is not cached and could not be downloaded; see `fetch_web_runtime`.
    """
    tflite_path, folder = Path(tflite_path), Path(folder)
    check_new_folder(folder)
    described = read_description(tflite_path)
    num_classes = _checked_classes(described)
    content, about = tflite_path.read_bytes(), described.description
    if class_names is not None:
        content = with_metadata(content, replace(about, class_names=checked_class_names(class_names, num_classes)))
    example_files = _checked_examples(examples)
    fetch_web_runtime()
    buttons = (
        f'\n<button type="button"><img src="{file}" alt="Example: {escape(path.stem)}"></button>'
        for file, path in example_files.items()
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_files(folder) as (temporary,):
        temporary.mkdir()
        for resource in (resources.files("keras_vit.export.web") / "static").iterdir():
            (temporary / resource.name).write_bytes(resource.read_bytes())
        page = temporary / "index.html"
        page.write_text(page.read_text("utf-8").replace(EXAMPLES, EXAMPLES + "".join(buttons)), "utf-8")
        unpack_web_runtime(temporary / "litert")
        (temporary / MODEL_FILE).write_bytes(content)
        for file, path in example_files.items():
            (temporary / file).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, temporary / file)
    return folder


def _checked_classes(described: DescribedFile) -> int:
    """The number of classes of a file that the page can run; raises ValueError for others."""
    path, available = described.path, described.signatures
    preprocessing = stated_preprocessing(described.description.preprocessing, path)
    if CLASSIFY not in available:
        raise ValueError(f"{path} has no signature {CLASSIFY!r}. Received: {', '.join(available) or 'none'}")
    for key in (key for key in (CLASSIFY, ATTENTION) if key in available):
        tensors = (*available[key].inputs, *available[key].outputs)
        if [tensor.name for tensor in tensors] != [INPUT, OUTPUTS[key]]:
            received = ", ".join(map(str, tensors))
            raise ValueError(f"Signature {key!r} must take {INPUT!r} and return {OUTPUTS[key]!r}. Received: {received}")
        expected = (1, *preprocessing.image_size, preprocessing.channels)
        if tensors[0].shape != expected:
            raise ValueError(f"{path} takes images {tensors[0].shape}, but its preprocessing produces {expected}.")
        for tensor, scale in zip(tensors, (1, 1 / 256 if key == CLASSIFY else None)):
            wrong = tensor.quantization and scale and tensor.quantization != (scale, 0)
            if tensor.dtype not in ("float32", "uint8") or wrong:
                raise ValueError(f"The page runs float32 and uint8 files of `write_tflite`. Received: {tensor}")
    return available[CLASSIFY].outputs[0].shape[-1]


def _checked_examples(examples) -> dict[str, Path]:
    """File in the folder -> path. Files are numbered, which makes them unique and valid in URLs."""
    paths = [Path(path) for path in examples]
    for path in paths:
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            raise ValueError(f"An example must be an image ({', '.join(IMAGE_SUFFIXES)}). Received: {path}")
        if not path.is_file():
            raise FileNotFoundError(f"Example {path} does not exist.")
    return {f"examples/{i}{path.suffix.lower()}": path for i, path in enumerate(paths, 1)}


REGISTRY = "https://registry.npmjs.org"
TIMEOUT_SECONDS, LONGEST_SECONDS = 60, 1_800  # without an answer, and in all
MOST_BYTES = 100_000_000  # of a tarball; the largest has 12 million
# For current browsers, for those without relaxed SIMD, and for WebGPU. The threaded build is omitted: it requires
# headers that a plain web server does not send, and was no faster on two cores.
BUILDS = ("internal", "compat_internal", "jspi_internal")


@dataclass(frozen=True)
class Package:
    """A package of the npm registry."""

    name: str  # with the scope
    version: str
    sha512: str  # of the tarball in base64, as in npm's lock files after "sha512-"
    files: tuple[str, ...]  # that a page loads

    @property
    def tarball(self) -> str:
        """File name, as `npm pack` writes it."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"

    @property
    def url(self) -> str:
        """Address in the npm registry."""
        return f"{registry()}/{self.name}/-/{self.name.rpartition('/')[2]}-{self.version}.tgz"


PACKAGES = (
    Package(
        "@litertjs/core",
        "2.5.3",
        "PlGmbMOq9WitX7FO0jhbdJw9GthatsyuCQXjTt/wJZo0FLaw48q4tz8IwqgqCIkviYGr9OFDL1kCnN4nzWoyJQ==",
        (
            "package.json",
            "dist/index.js",
            *(f"wasm/litert_wasm_{build}.{end}" for build in BUILDS for end in ("js", "wasm")),
        ),
    ),
    Package(
        "@litertjs/wasm-utils",
        "2.5.3",
        "4fJiw6tBQnIs+0jH/OQ16nYOiSl8/+zZnn5h2ul8aTKHi05sVqZW580Tmk78pC2kT39A9OYBVdFawteZ/sI1kQ==",
        ("package.json", "dist/index.js"),
    ),
)


def registry() -> str:
    """URL of the npm registry: from npm_config_registry in the environment, or npmjs.org."""
    url = os.environ.get("npm_config_registry") or os.environ.get("NPM_CONFIG_REGISTRY") or REGISTRY
    return url.rstrip("/")


def cache_folder() -> Path:
    """keras_vit/web in KERAS_HOME, by default in ~/.keras."""
    return cache_dir() / "web"


def fetch_web_runtime() -> list[Path]:
    """Downloads the tarballs of LiteRT.js (12 MB) to `cache_folder`, unless they are cached."""
    return [fetch_package(package) for package in PACKAGES]


def unpack_web_runtime(folder: Path):
    """Unpacks the files of `PACKAGES` into `folder`/<package>/, such as core/wasm/; see `fetch_web_runtime`."""
    for package, tarball in zip(PACKAGES, fetch_web_runtime()):
        with tarfile.open(tarball) as archive:
            for name in package.files:
                # By name, and contents only: no path, link or mode from the archive reaches the disk.
                content = archive.extractfile(f"package/{name}")
                if content is None:
                    raise ValueError(f"{name} is not a file in {tarball}. Remove {tarball}.")
                path = folder / package.name.rpartition("/")[2] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("wb") as file:
                    shutil.copyfileobj(content, file)


def fetch_package(package: Package) -> Path:
    """Downloads the tarball of a package to `cache_folder`, unless it is cached; see `fetch_web_runtime`."""
    path = cache_folder() / package.tarball
    if path.is_file():
        if not _is_pinned(path.read_bytes(), package):
            raise ValueError(f"{path} is not {package.name} {package.version} of npm (its sha512 differs). Remove it.")
        return path
    url = package.url
    fix = f"Try again, or download {url} by other means (npm pack {package.name}@{package.version}) to {path}"
    print(f"Downloading {url}")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            content = _read(response)
    except urllib.error.HTTPError as error:
        error.close()
        raise ConnectionError(f"{url} returned {error.code} {error.reason}. {fix}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise ConnectionError(f"The download of {url} failed: {error}. {fix}") from error
    if not _is_pinned(content, package):
        raise ConnectionError(f"The file at {url} is not the pinned one (its sha512 differs). {fix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)
    return path


def _read(response) -> bytes:
    """What a server sends; raises OSError for more than a tarball has, or if it takes too long."""
    content, end = b"", time.monotonic() + LONGEST_SECONDS
    while chunk := response.read1():
        content += chunk
        if len(content) > MOST_BYTES:
            raise OSError(f"it has more than {MOST_BYTES:,} bytes")
        if time.monotonic() > end:
            raise TimeoutError(f"{len(content):,} bytes took more than {LONGEST_SECONDS} s")
    if getattr(response, "length", None):
        raise OSError(f"it ended after {len(content):,} bytes, {response.length:,} are missing")
    return content


def _is_pinned(content: bytes, package) -> bool:
    return base64.b64encode(hashlib.sha512(content).digest()).decode() == package.sha512
