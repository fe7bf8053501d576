"""The machine that `keras-vit doctor` diagnoses. Standard library only."""

import fcntl
import importlib.metadata
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from keras_vit_cli.errors import temporary_folder, temporary_folder_problem

TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu")
PACKAGES = (
    *("keras_vit", "keras", *TENSORFLOWS, "libtpu", "jax", "tf-keras", "tensorflow-datasets"),
    *("tensorflow-addons", "ai-edge-litert", "numpy", "protobuf"),
)
# PCI vendor and device IDs of TPUs, from jax/_src/hardware_utils.py; v2 has the ID of v3.
GOOGLE = "0x1ae0"
TPUS = {"0x0027": "v3", "0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e", "0x006f": "v6e", "0x0076": "v7x"}


@dataclass(frozen=True)
class Machine:
    """Facts about the machine, read without importing other packages.

    Args:
        versions: Version of each installed package of `PACKAGES`.
        environment: Environment variables.
        backend: Backend of Keras.
        tpu_chips: Generation of each TPU chip on the PCI bus, such as "v5e".
        tpu_lock: Why the TPU cannot be opened, such as "is locked by another process"; None if it is free.
        cpu_cores: Number of logical CPU cores.
        memory_bytes: Physical memory.
        free_bytes: Free disk space by folder.
        nvidia: Whether there is an NVIDIA driver.
        temporary_problem: Why no temporary files can be written, or None.
    """

    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    backend: str = "tensorflow"
    tpu_chips: tuple[str, ...] = ()
    tpu_lock: str | None = None
    cpu_cores: int = 0
    memory_bytes: int = 0
    free_bytes: dict[str, int] = field(default_factory=dict)
    nvidia: bool = False
    temporary_problem: str | None = None

    @property
    def trains_on_jax(self) -> bool:
        """Whether recipes train with Keras on JAX, and TensorFlow only reads data."""
        return self.backend == "jax" and "jax" in self.versions

    def older(self, package: str, version: str) -> bool:
        """Whether the package is installed and older than this version."""
        return package in self.versions and _release(self.versions[package]) < _release(version)

    def newer(self, package: str, version: str) -> bool:
        """Whether the package is installed and newer than this version."""
        return package in self.versions and _release(self.versions[package]) > _release(version)


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])]


def this_machine() -> Machine:
    """Examines packages, environment variables, the PCI bus, the TPU's lock file and disks."""
    folders = {temporary_folder(), os.getcwd(), str(Path.home())}
    return Machine(
        versions=installed_versions(),
        environment=dict(os.environ),
        backend=_backend(),
        tpu_chips=find_tpu_chips(),
        tpu_lock=check_tpu_lock(),
        cpu_cores=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        free_bytes={folder: shutil.disk_usage(folder).free for folder in sorted(folders) if os.path.isdir(folder)},
        nvidia=os.path.exists("/dev/nvidiactl"),
        temporary_problem=temporary_folder_problem(),
    )


def installed_versions() -> dict[str, str]:
    """Version of each installed package of `PACKAGES`; "0" for one whose metadata is incomplete."""
    versions = {}
    for name in PACKAGES:
        try:
            metadata = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        # An interrupted pip leaves empty metadata, for which importlib.metadata.version fails or returns None.
        versions[name] = metadata["Version"] if "Version" in metadata else "0"
    return versions


def _backend() -> str:
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend
    try:
        folder = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
        return json.loads((folder / "keras.json").read_text())["backend"]
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"


def find_tpu_chips(bus: Path = Path("/sys/bus/pci/devices")) -> tuple[str, ...]:
    """Generation of each TPU chip on the PCI bus."""
    findings = []
    for device in sorted(bus.glob("*")):
        try:
            vendor, number = ((device / name).read_text().strip() for name in ("vendor", "device"))
        except OSError:
            continue
        if vendor == GOOGLE and number in TPUS:
            findings.append(TPUS[number])
    return tuple(findings)


def check_tpu_lock(file: Path = Path("/tmp/libtpu_lockfile")) -> str | None:
    """Why libtpu cannot lock its file, or None. The file outlives a run of libtpu; its lock does not."""
    if not file.exists():
        return None
    if not os.access(file, os.R_OK | os.W_OK):
        return f"belongs to another user (uid {file.stat().st_uid})"
    with open(file, "r+") as opened:
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when the file is closed
        except OSError:
            return "is locked by another process"
    return None
