"""Known problems of packages, environment variables and hardware, each with a fix. Standard library only.

Each check takes a `Machine` and yields its findings.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from keras_vit_cli.doctor.machine import TENSORFLOWS, Machine

CPU_INSTALL = "pip install 'keras_vit[tensorflow,recipes]'"
TPU_INSTALL = "pip install 'keras_vit[tpu,recipes]'"
NEWEST_LIBTPU = "0.0.27"  # for tensorflow-tpu 2.20: with 0.0.33, 0.0.40 and 0.0.51 "import tensorflow" aborts
OLDER_LIBTPU = f"pip install 'libtpu<={NEWEST_LIBTPU}'"
LIBTPU_LIBRARY = 'TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$(python -c "import libtpu; print(libtpu.get_library_path())")'
# Free disk space in bytes: below the first a failure, below the second a warning.
MIN_FREE_BYTES, LOW_FREE_BYTES = 1e9, 10e9


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


def tensorflow_version(machine: Machine) -> Iterator[Finding]:
    if not any(name in machine.versions for name in TENSORFLOWS):
        yield Finding(
            "failure",
            "TensorFlow is not installed. Models run on other backends of Keras; recipes and export do not.",
            f"{CPU_INSTALL}, on a TPU VM {TPU_INSTALL}",
        )
    for name in TENSORFLOWS:
        if name in machine.versions and (machine.older(name, "2.20") or not machine.older(name, "2.22")):
            yield Finding(
                "warning",
                f"{name} is {machine.versions[name]}; keras_vit is tested with 2.20 and 2.21; TPUs have 2.20.",
                f"pip install '{name}>=2.20,<2.22'",
            )


def keras_version(machine: Machine) -> Iterator[Finding]:
    if machine.older("keras", "3.13.1"):
        yield Finding(
            "failure",
            f"Keras is {machine.versions['keras']}, older than 3.13.1.",
            "pip install --upgrade 'keras>=3.13.1'",
        )


def keras_backend(machine: Machine) -> Iterator[Finding]:
    if machine.backend != "tensorflow" and not machine.trains_on_jax:
        yield Finding(
            "failure",
            f"The backend of Keras is {machine.backend!r}; recipes require TensorFlow, or JAX where it is installed; "
            "export requires TensorFlow.",
            'export KERAS_BACKEND=tensorflow, or set "backend" in ~/.keras/keras.json',
        )


def legacy_keras(machine: Machine) -> Iterator[Finding]:
    if machine.environment.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        yield Finding(
            "warning",
            "TF_USE_LEGACY_KERAS is set: tf.keras is Keras 2, which cannot be mixed with Keras 3.",
            "unset TF_USE_LEGACY_KERAS",
        )


def addons(machine: Machine) -> Iterator[Finding]:
    if "tensorflow-addons" in machine.versions:
        yield Finding(
            "warning",
            "tensorflow-addons was discontinued in 2024 and does not work with Keras 3; keras_vit does not use it.",
            "pip uninstall -y tensorflow-addons; docs/migrate.md names replacements",
        )


def datasets(machine: Machine) -> Iterator[Finding]:
    if "tensorflow-datasets" not in machine.versions:
        yield Finding(
            "failure",
            "tensorflow-datasets is not installed: recipes cannot read data.",
            "pip install 'keras_vit[recipes]'",
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
            f"{OLDER_LIBTPU}; install keras_vit[preflight], which requires a newer one, in a separate environment",
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


def missing_files(machine: Machine) -> Iterator[Finding]:
    """Variables that name a missing file."""
    fixes = {
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": f"export {LIBTPU_LIBRARY}",
        "GOOGLE_APPLICATION_CREDENTIALS": "unset GOOGLE_APPLICATION_CREDENTIALS (a TPU VM has its own credentials), "
        "or set it to a key file",
    }
    for variable, fix in fixes.items():
        file = machine.environment.get(variable)
        if file and not os.path.isfile(file):
            yield Finding("failure", f"{variable} points to a missing file: {file}", fix)


def tpu_in_use(machine: Machine) -> Iterator[Finding]:
    if machine.tpu_lock:
        yield Finding(
            "failure",
            f"The TPU is in use: /tmp/libtpu_lockfile {machine.tpu_lock}.",
            "Wait for or stop the process that `sudo lsof /tmp/libtpu_lockfile` shows; if there is none, "
            "sudo rm -f /tmp/libtpu_lockfile",
        )


def workers(machine: Machine) -> Iterator[Finding]:
    text = machine.environment.get("TF_CONFIG")
    if not text:
        return
    try:
        config = json.loads(text)
        config["cluster"][config["task"]["type"]][int(config["task"]["index"])]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        yield Finding(
            "failure",
            f"TF_CONFIG does not name a worker of its cluster ({type(error).__name__}: {error}): {text}",
            'export TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
            '"task": {"type": "worker", "index": 0}}\' with the index of each worker, or unset TF_CONFIG',
        )


def disk(machine: Machine) -> Iterator[Finding]:
    for folder, free in machine.free_bytes.items():
        if free < LOW_FREE_BYTES:
            yield Finding(
                "failure" if free < MIN_FREE_BYTES else "warning",
                f"Only {free / 1e9:.1f} GB are free on the disk of {folder}.",
                "Free disk space; data and runs can be on gs:// (--data.data-dir, --run.folder)",
            )


def temporary_files(machine: Machine) -> Iterator[Finding]:
    """TensorFlow's own errors do not say that its temporary files could not be written."""
    if machine.temporary_problem:
        yield Finding(
            "failure",
            f"{machine.temporary_problem}. TensorFlow was not started.",
            "Free some space there, or set TMPDIR to another folder: export TMPDIR=/path",
        )


CHECKS: tuple[Callable[[Machine], Iterable[Finding]], ...] = (
    *(tensorflow_twice, tensorflow_version, keras_version, keras_backend, legacy_keras, addons, datasets, libtpu),
    *(chips_without_tensorflow, tensorflow_without_chips, tpu_of_another_host, pluggable_device, tpu_in_use),
    *(workers, missing_files, disk, temporary_files),
)
