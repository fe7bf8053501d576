"""The machine that `keras-vit doctor` diagnoses, and known problems of packages, variables and hardware, with fixes.

Standard library only. Each check takes a `Machine` and yields its findings.
"""

import fcntl
import importlib.metadata
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from keras_vit_cli.errors import chosen_backend, temporary_folder

TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu")
PACKAGES = ("vit-for-keras", "keras", *TENSORFLOWS, "libtpu", "jax", "tensorflow-datasets", "numpy")
# PCI vendor and device IDs of TPUs, from jax/_src/hardware_utils.py; v2 has the ID of v3.
GOOGLE = "0x1ae0"
TPUS = {"0x0027": "v3", "0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e", "0x006f": "v6e", "0x0076": "v7x"}
CPU_INSTALL = "pip install 'vit-for-keras[tensorflow,recipes]'"
TPU_INSTALL = "pip install 'vit-for-keras[tpu,recipes]'"
NEWEST_LIBTPU = "0.0.27"  # for tensorflow-tpu 2.20: with 0.0.33, 0.0.40 and 0.0.51 "import tensorflow" aborts
OLDER_LIBTPU = f"pip install 'libtpu<={NEWEST_LIBTPU}'"
LIBTPU_LIBRARY = 'TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$(python -c "import libtpu; print(libtpu.get_library_path())")'
# Free disk space in bytes: below the first a failure, below the second a warning.
MIN_FREE_BYTES, LOW_FREE_BYTES = 1e9, 10e9


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

    @property
    def trains_on_jax(self) -> bool:
        """Whether recipes train with Keras on JAX, and TensorFlow only reads data."""
        return self.backend == "jax" and "jax" in self.versions

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
        backend=chosen_backend()[0],
        tpu_chips=find_tpu_chips(),
        tpu_lock=check_tpu_lock(),
        cpu_cores=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        free_bytes={folder: shutil.disk_usage(folder).free for folder in sorted(folders) if os.path.isdir(folder)},
        nvidia=os.path.exists("/dev/nvidiactl"),
    )


def installed_versions() -> dict[str, str]:
    """Version of each installed package of `PACKAGES`, and of the other project's keras-vit."""
    versions = {}
    for name in (*PACKAGES, "keras-vit"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def find_tpu_chips(bus: Path = Path("/sys/bus/pci/devices")) -> tuple[str, ...]:
    """Generation of each TPU chip on the PCI bus."""
    chips = []
    for device in sorted(bus.glob("*")):
        try:
            vendor, number = ((device / name).read_text().strip() for name in ("vendor", "device"))
        except OSError:
            continue
        if vendor == GOOGLE and number in TPUS:
            chips.append(TPUS[number])
    return tuple(chips)


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


@dataclass(frozen=True)
class Finding:
    """A problem and its fix.

    Args:
        severity: "failure" if it prevents training, "warning" if it may.
        problem: One sentence.
        fix: Command or advice.
    """

    severity: str
    problem: str
    fix: str


def tensorflow_twice(machine: Machine) -> Iterator[Finding]:
    """Two TensorFlow packages contain the same files: the one installed last wins, the other is broken."""
    packages = [name for name in TENSORFLOWS if name in machine.versions]
    if len(packages) < 2:
        return
    install = TPU_INSTALL if "tensorflow-tpu" in packages else CPU_INSTALL
    yield Finding(
        "failure",
        f"{' and '.join(packages)} conflict: {'both' if len(packages) == 2 else 'all'} are installed.",
        f"pip uninstall -y {' '.join(packages)} libtpu && {install}",
    )


def missing_tensorflow(machine: Machine) -> Iterator[Finding]:
    if not any(name in machine.versions for name in TENSORFLOWS):
        yield Finding(
            "failure",
            "TensorFlow is not installed. Models run on other backends of Keras; recipes and export do not.",
            f"{CPU_INSTALL}, on a TPU VM {TPU_INSTALL}",
        )


def keras_backend(machine: Machine) -> Iterator[Finding]:
    if machine.backend != "tensorflow" and not machine.trains_on_jax:
        yield Finding(
            "failure",
            f"The backend of Keras is {machine.backend!r}; recipes require TensorFlow, or JAX where it is installed; "
            "export requires TensorFlow.",
            'export KERAS_BACKEND=tensorflow, or set "backend" in ~/.keras/keras.json',
        )


def other_package(machine: Machine) -> Iterator[Finding]:
    if "keras-vit" in machine.versions:
        yield Finding(
            "failure",
            f"keras-vit {machine.versions['keras-vit']} is another project with files in the same folder keras_vit.",
            "pip uninstall -y keras-vit && pip install --force-reinstall --no-deps vit-for-keras",
        )


def datasets(machine: Machine) -> Iterator[Finding]:
    if "tensorflow-datasets" not in machine.versions:
        yield Finding(
            "failure",
            "tensorflow-datasets is not installed: recipes cannot read data.",
            "pip install 'vit-for-keras[recipes]'",
        )


def libtpu(machine: Machine) -> Iterator[Finding]:
    if "tensorflow-tpu" not in machine.versions or machine.trains_on_jax:
        return
    if "libtpu" not in machine.versions:
        yield Finding("failure", "tensorflow-tpu is installed without libtpu.", OLDER_LIBTPU)
    elif machine.newer("libtpu", NEWEST_LIBTPU):
        yield Finding(
            "failure",
            f"libtpu is {machine.versions['libtpu']}: with tensorflow-tpu, versions after {NEWEST_LIBTPU} abort "
            '"import tensorflow".',
            f"{OLDER_LIBTPU}; install vit-for-keras[preflight], which requires a newer one, in a separate environment",
        )


def chips_without_tensorflow(machine: Machine) -> Iterator[Finding]:
    if machine.tpu_chips and "tensorflow-tpu" not in machine.versions and not machine.trains_on_jax:
        others = [name for name in TENSORFLOWS if name in machine.versions]
        yield Finding(
            "failure",
            f"Found {len(machine.tpu_chips)} TPU chips ({machine.tpu_chips[0]}), but tensorflow-tpu is not installed.",
            f"pip uninstall -y {' '.join(others)} && {TPU_INSTALL}" if others else TPU_INSTALL,
        )


def tensorflow_without_chips(machine: Machine) -> Iterator[Finding]:
    name = machine.environment.get("TPU_NAME")
    if machine.trains_on_jax:
        return
    if name == "local" and not machine.tpu_chips:
        yield Finding("failure", "TPU_NAME is 'local', but there is no TPU chip on this host.", "unset TPU_NAME")
    elif "tensorflow-tpu" in machine.versions and not (machine.tpu_chips or name or _skips_metadata(machine)):
        yield Finding(
            "warning",
            "tensorflow-tpu without a TPU: outside Google Cloud its import queries a metadata server for minutes.",
            f"export TPU_SKIP_MDS_QUERY=1, or {CPU_INSTALL} in a separate environment",
        )


def _skips_metadata(machine: Machine) -> bool:
    environment = machine.environment
    return bool(environment.get("TPU_SKIP_MDS_QUERY")) or environment.get("TPU_LOAD_LIBRARY") == "0"


def tpu_of_another_host(machine: Machine) -> Iterator[Finding]:
    name = machine.environment.get("TPU_NAME", "local")
    if name != "local" and machine.tpu_chips and machine.environment.get("TPU_LOAD_LIBRARY") != "0":
        yield Finding(
            "warning",
            f"TPU_NAME is {name!r}: TensorFlow will use TPU servers on the network, not the chips of this host.",
            "On a single host: unset TPU_NAME. On a slice of several: also export TPU_LOAD_LIBRARY=0 (docs/tpu.md)",
        )


def pluggable_device(machine: Machine) -> Iterator[Finding]:
    """Google's release tests of TensorFlow set both variables on single hosts with these chips."""
    library = machine.environment.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
    new = [chip for chip in machine.tpu_chips if chip not in ("v3", "v4")]
    if new and not library and not machine.trains_on_jax and machine.environment.get("TPU_LOAD_LIBRARY") != "0":
        yield Finding(
            "warning",
            f"{new[0]} chips require PJRT, which is not enabled.",
            f"export NEXT_PLUGGABLE_DEVICE_USE_C_API=true {LIBTPU_LIBRARY}",
        )


def tpu_in_use(machine: Machine) -> Iterator[Finding]:
    if machine.tpu_lock:
        yield Finding(
            "failure",
            f"The TPU is in use: /tmp/libtpu_lockfile {machine.tpu_lock}.",
            "Wait for or stop the process that `sudo lsof /tmp/libtpu_lockfile` shows; if there is none, "
            "sudo rm -f /tmp/libtpu_lockfile",
        )


def disk(machine: Machine) -> Iterator[Finding]:
    for folder, free in machine.free_bytes.items():
        if free < LOW_FREE_BYTES:
            yield Finding(
                "failure" if free < MIN_FREE_BYTES else "warning",
                f"Only {free / 1e9:.1f} GB are free on the disk of {folder}.",
                "Free disk space; data and runs can be on gs:// (--data.data-dir, --run.folder)",
            )


CHECKS: tuple[Callable[[Machine], Iterable[Finding]], ...] = (
    *(other_package, tensorflow_twice, missing_tensorflow, keras_backend, datasets, libtpu, chips_without_tensorflow),
    *(tensorflow_without_chips, tpu_of_another_host, pluggable_device, tpu_in_use, disk),
)
