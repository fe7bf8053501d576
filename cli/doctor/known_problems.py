"""Known bad combinations of packages, variables and hardware, each with its remedy. Standard library only.

A check takes a `Machine` and yields what is wrong.
"""

import json
import os
import re
from dataclasses import dataclass, field

TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu")
CPU_INSTALL = "pip install 'keras_vit[tensorflow,recipes]'"
TPU_INSTALL = "pip install 'keras_vit[tpu,recipes]'"
NEWEST_LIBTPU = "0.0.27"  # for tensorflow-tpu 2.20: with 0.0.33, 0.0.40 and 0.0.51 "import tensorflow" aborts
OLDER_LIBTPU = f"pip install 'libtpu<={NEWEST_LIBTPU}'"
LIBTPU_LIBRARY = 'TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$(python -c "import libtpu; print(libtpu.get_library_path())")'
LITTLE_SPACE, SOME_SPACE = 1e9, 10e9  # bytes


@dataclass(frozen=True)
class Finding:
    """A "failure" stops training, a "warning" may."""

    severity: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Machine:
    """What is known without importing anything.

    Args:
        versions: Of installed packages.
        requirements: Of these, lines of their metadata.
        environment: Variables.
        backend: Of Keras.
        chips: Generation of each TPU chip on the PCI bus, such as "v5e".
        lock: Who holds the TPU, in words.
        free_bytes: Of the disk of each folder.
        nvidia: There is an NVIDIA driver.
    """

    versions: dict[str, str] = field(default_factory=dict)
    requirements: dict[str, list[str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    backend: str = "tensorflow"
    chips: tuple[str, ...] = ()
    lock: str | None = None
    cores: int = 0
    memory_bytes: int = 0
    free_bytes: dict[str, int] = field(default_factory=dict)
    nvidia: bool = False

    def older(self, package, version) -> bool:
        """Whether the package is installed and older than this version."""
        return package in self.versions and _numbers(self.versions[package]) < _numbers(version)

    def newer(self, package, version) -> bool:
        """Whether the package is installed and newer."""
        return package in self.versions and _numbers(self.versions[package]) > _numbers(version)


def _numbers(version):
    return [int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number]


def tensorflow_twice(machine):
    """Both hold the same files: the one installed last wins, the other is broken."""
    found = [name for name in TENSORFLOWS if name in machine.versions]
    if len(found) < 2:
        return
    why = " tf-models-official asks for tensorflow." if "tf-models-official" in machine.versions else ""
    wanted = TPU_INSTALL if "tensorflow-tpu" in found else CPU_INSTALL
    yield Finding(
        "failure",
        f"{' and '.join(found)} are installed over each other.{why}",
        f"pip uninstall -y {' '.join(found)} libtpu && {wanted}; tf-models-official only with --no-deps (docs/tpu.md)",
    )


def tensorflow_version(machine):
    if not any(name in machine.versions for name in TENSORFLOWS):
        yield Finding(
            "failure",
            "There is no TensorFlow; the models run on other backends of Keras, recipes and export do not.",
            f"{CPU_INSTALL}, on a TPU VM {TPU_INSTALL}",
        )
    for name in TENSORFLOWS:
        if name in machine.versions and (machine.older(name, "2.20") or not machine.older(name, "2.21")):
            yield Finding(
                "warning",
                f"{name} is {machine.versions[name]}; keras_vit is tested with 2.20, the newest there is for TPUs.",
                f"pip install '{name}>=2.20,<2.21'",
            )


def keras_version(machine):
    if machine.older("keras", "3.13"):
        yield Finding(
            "failure", f"Keras is {machine.versions['keras']}, older than 3.13.", "pip install --upgrade 'keras>=3.13'"
        )


def keras_backend(machine):
    if machine.backend != "tensorflow":
        yield Finding(
            "failure",
            f"The backend of Keras is {machine.backend!r}; recipes and export need TensorFlow.",
            'export KERAS_BACKEND=tensorflow, or set "backend" in ~/.keras/keras.json',
        )


def legacy_keras(machine):
    if machine.environment.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        yield Finding(
            "warning",
            "TF_USE_LEGACY_KERAS is set: tf.keras is Keras 2 then, and mixing it with Keras 3 fails.",
            "unset TF_USE_LEGACY_KERAS",
        )


def addons(machine):
    if "tensorflow-addons" in machine.versions:
        yield Finding(
            "warning",
            "tensorflow-addons ended in 2024 and does not import beside Keras 3; keras_vit does not use it.",
            "pip uninstall -y tensorflow-addons; README.md names what replaces it",
        )


def data_sets(machine):
    if "tensorflow-datasets" not in machine.versions:
        yield Finding(
            "failure", "tensorflow-datasets is missing: recipes cannot read data.", "pip install 'keras_vit[recipes]'"
        )


def clashes(machine):
    """Packages whose own requirements another one has overruled: protobuf and NumPy are the usual victims."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.utils import canonicalize_name
    except ImportError:
        return
    for package, lines in machine.requirements.items():
        for line in lines:
            try:
                wanted = Requirement(line)
            except InvalidRequirement:  # of old packages
                continue
            version = machine.versions.get(canonicalize_name(wanted.name), machine.versions.get(wanted.name))
            applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            if version and applies and not wanted.specifier.contains(version, prereleases=True):
                asked = f"{wanted.name}{wanted.specifier}"
                yield Finding(
                    "warning",
                    f"{package} {machine.versions[package]} asks for {asked}; {version} is there.",
                    f"pip install '{asked}', or make a new environment with one pip install for all packages",
                )


def libtpu(machine):
    if "tensorflow-tpu" not in machine.versions:
        return
    if "libtpu" not in machine.versions:
        yield Finding("failure", "tensorflow-tpu is there, libtpu is not.", OLDER_LIBTPU)
    elif machine.newer("libtpu", NEWEST_LIBTPU):
        yield Finding(
            "failure",
            f"libtpu is {machine.versions['libtpu']}: with tensorflow-tpu, versions after {NEWEST_LIBTPU} end the "
            "process when TensorFlow is imported.",
            f"{OLDER_LIBTPU}; keras_vit[preflight], which needs a newer one, in an environment of its own",
        )


def chip_without_tensorflow(machine):
    if machine.chips and "tensorflow-tpu" not in machine.versions:
        others = [name for name in TENSORFLOWS if name in machine.versions]
        yield Finding(
            "failure",
            f"There are {len(machine.chips)} TPU chips ({machine.chips[0]}), but not the TensorFlow that sees them.",
            f"pip uninstall -y {' '.join(others)} && {TPU_INSTALL}" if others else TPU_INSTALL,
        )


def tensorflow_without_chip(machine):
    name = machine.environment.get("TPU_NAME")
    if name == "local" and not machine.chips:
        yield Finding("failure", "TPU_NAME is 'local', but there is no TPU chip here.", "unset TPU_NAME")
    elif "tensorflow-tpu" in machine.versions and not (machine.chips or name or _skips_metadata(machine)):
        yield Finding(
            "warning",
            "tensorflow-tpu without a TPU: off Google Cloud importing it asks for metadata for minutes.",
            f"export TPU_SKIP_MDS_QUERY=1, or {CPU_INSTALL} in another environment",
        )


def _skips_metadata(machine):
    environment = machine.environment
    return environment.get("TPU_SKIP_MDS_QUERY") or environment.get("TPU_LOAD_LIBRARY") == "0"


def tpu_of_another_host(machine):
    name = machine.environment.get("TPU_NAME", "local")
    if name != "local" and machine.chips and machine.environment.get("TPU_LOAD_LIBRARY") != "0":
        yield Finding(
            "warning",
            f"TPU_NAME is {name!r}: TensorFlow will look for TPU servers on the network, not for the chips here.",
            "On one host: unset TPU_NAME. On a slice of several: export TPU_LOAD_LIBRARY=0 as well (docs/tpu.md)",
        )


def pluggable_device(machine):
    """Google's own release tests of TensorFlow set both variables wherever a host of these chips works alone."""
    library = machine.environment.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
    new = [chip for chip in machine.chips if chip not in ("v3", "v4")]
    if new and not library and machine.environment.get("TPU_LOAD_LIBRARY") != "0":
        yield Finding(
            "warning",
            f"Chips of the generation {new[0]} are reached through PJRT, which is not switched on.",
            f"export NEXT_PLUGGABLE_DEVICE_USE_C_API=true {LIBTPU_LIBRARY}",
        )


def missing_files(machine):
    """Variables that name a file which is not there."""
    remedies = {
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": f"export {LIBTPU_LIBRARY}",
        "GOOGLE_APPLICATION_CREDENTIALS": "unset GOOGLE_APPLICATION_CREDENTIALS (a TPU VM has credentials of its own), "
        "or name a key file",
    }
    for variable, remedy in remedies.items():
        file = machine.environment.get(variable)
        if file and not os.path.isfile(file):
            yield Finding("failure", f"{variable} points nowhere: {file}", remedy)


def tpu_in_use(machine):
    if machine.lock:
        yield Finding(
            "failure",
            f"The TPU is in use: /tmp/libtpu_lockfile {machine.lock}.",
            "Wait for that process or end it; if there is none, sudo rm -f /tmp/libtpu_lockfile",
        )


def workers(machine):
    text = machine.environment.get("TF_CONFIG")
    if not text:
        return
    try:
        config = json.loads(text)
        config["cluster"][config["task"]["type"]][int(config["task"]["index"])]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        yield Finding(
            "failure",
            f"TF_CONFIG does not say which of which workers this is ({type(error).__name__}: {error}): {text}",
            'export TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
            '"task": {"type": "worker", "index": 0}}\' with each worker\'s own index, or unset TF_CONFIG',
        )


def disk(machine):
    for folder, free in machine.free_bytes.items():
        if free < SOME_SPACE:
            yield Finding(
                "failure" if free < LITTLE_SPACE else "warning",
                f"{free / 1e9:.1f} GB are free where {folder} is.",
                "Make room; data and runs can be on gs:// (--data.data-dir, --run.folder)",
            )


CHECKS = (
    *(tensorflow_twice, tensorflow_version, keras_version, keras_backend, legacy_keras, addons, data_sets, clashes),
    *(libtpu, chip_without_tensorflow, tensorflow_without_chip, tpu_of_another_host, pluggable_device, tpu_in_use),
    *(workers, missing_files, disk),
)
