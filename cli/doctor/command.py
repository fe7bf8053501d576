"""`keras-vit doctor`: whether this machine can train, and what to do where it cannot.

Standard library only: where the diagnosis is wanted, importing TensorFlow or Keras may hang or end the process. What
needs them runs in a process of its own.
"""

import fcntl
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from keras_vit_cli.doctor.known_problems import CHECKS, OLDER_LIBTPU, TENSORFLOWS, Finding, Machine

PACKAGES = (
    *("keras_vit", "keras", *TENSORFLOWS, "libtpu", "jax", "tf-keras", "tensorflow-datasets", "tf-models-official"),
    *("tensorflow-addons", "ai-edge-litert", "numpy", "protobuf"),
)
# PCI device numbers of TPUs, as JAX has them (jax/_src/hardware_utils.py); v2 has v3's.
VENDOR, TPUS = (
    "0x1ae0",
    {"0x0027": "v3", "0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e", "0x006f": "v6e", "0x0076": "v7x"},
)
TIMEOUT_S = 180
# Each stage prints what it found, so that one which never ends is known by what came before it.
PROBE = """
import json, sys
def say(**found): print("FOUND" + json.dumps(found), flush=True)
sys.excepthook = lambda kind, error, trace: say(error=f"{kind.__name__}: {str(error)[:500]}")
import tensorflow as tf
say(version=tf.__version__, physical_devices=[device.name for device in tf.config.list_physical_devices()])
from keras_vit.recipes.distributed.strategy import choose_strategy
strategy = choose_strategy("auto")
is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
say(strategy="TPUStrategy" if is_tpu else type(strategy).__name__.lstrip("_"), replicas=strategy.num_replicas_in_sync,
    logical_devices=[device.name for device in tf.config.list_logical_devices()])
def products(): return strategy.run(lambda: tf.reduce_sum(tf.ones((128, 128)) @ tf.ones((128, 128))))
product = tf.function(products)()  # with a name: a TPU's graph takes none of a lambda
say(right_answers=sum(float(value) == 128**3 for value in strategy.experimental_local_results(product)))
"""
STAGES = {
    "version": "import tensorflow",
    "strategy": "choose_strategy('auto')",
    "right_answers": "a matrix product on every replica",
}


@dataclass(frozen=True)
class Doctor:
    """Say what this machine has, which strategy a recipe would take, what is wrong, and how to mend it.

    The exit status is 1 if something would stop training.

    Args:
        json: Print JSON for programs.
    """

    json: bool = False

    def run(self) -> int:
        """Looks, asks TensorFlow, prints, and returns the exit status."""
        machine = look()
        findings = [finding for check in CHECKS for finding in check(machine)]
        answer = {}
        if any(name in machine.versions for name in TENSORFLOWS):
            print(f"Asking TensorFlow, for up to {TIMEOUT_S} s ...", file=sys.stderr)
            answer = ask(machine)
            findings += check_answer(machine, answer)
        if self.json:
            print(json.dumps(_shown(machine, answer, findings), indent=2))
        else:
            print(report(machine, answer, findings))
        return int(any(finding.severity == "failure" for finding in findings))


def look() -> Machine:
    """This machine, nothing imported."""
    versions, requirements = {}, {}
    for name in PACKAGES:
        try:
            # Of what was uninstalled by halves `version` gives None, warns, or will fail, as Python's version has it.
            versions[name] = importlib.metadata.metadata(name).get("Version") or "0"
            requirements[name] = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
    folders = {tempfile.gettempdir(), os.getcwd(), str(Path.home())}
    return Machine(
        versions=versions,
        requirements=requirements,
        environment=dict(os.environ),
        backend=_backend(),
        chips=chips(),
        lock=lock(),
        cores=os.cpu_count(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        free_bytes={folder: shutil.disk_usage(folder).free for folder in sorted(folders) if os.path.isdir(folder)},
        nvidia=os.path.exists("/dev/nvidiactl"),
    )


def _backend():
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend
    try:
        folder = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
        return json.loads((folder / "keras.json").read_text())["backend"]
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"


def chips(bus: Path = Path("/sys/bus/pci/devices")) -> tuple[str, ...]:
    """The generation of each TPU chip on the PCI bus."""
    found = []
    for device in sorted(bus.glob("*")):
        try:
            vendor, number = ((device / name).read_text().strip() for name in ("vendor", "device"))
        except OSError:
            continue
        if vendor == VENDOR and number in TPUS:
            found.append(TPUS[number])
    return tuple(found)


def lock(file: Path = Path("/tmp/libtpu_lockfile")) -> str | None:
    """Who keeps others from the TPU, in words; None if nobody does. libtpu keeps the file, and drops its lock."""
    if not file.exists():
        return None
    if not os.access(file, os.R_OK | os.W_OK):
        return f"belongs to another user (uid {file.stat().st_uid})"
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock of 64-bit Linux
    with open(file) as opened:
        kind, *_, process = struct.unpack("hhqqi4x", fcntl.fcntl(opened, fcntl.F_GETLK, request))
    return None if kind == fcntl.F_UNLCK else f"is locked by process {process}"


def ask(machine: Machine, code: str = PROBE, timeout_s: float = TIMEOUT_S) -> dict:
    """What TensorFlow says in a process of its own, with "exit_status" (None: no end in time) and "last_words"."""
    # Workers would wait for each other; without chips there is nobody to ask for their topology.
    environment = {name: value for name, value in machine.environment.items() if name != "TF_CONFIG"}
    if not machine.chips:
        environment["TPU_SKIP_MDS_QUERY"] = "1"
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=output, stderr=errors)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        found = [json.loads(line[5:]) for line in output if line.startswith("FOUND") and line.endswith("\n")]
        words = [line.strip() for line in errors if line.strip()]
    answer = {name: value for part in found for name, value in part.items()}
    return answer | {"exit_status": status, "last_words": words[-3:] if status != 0 else []}


def check_answer(machine: Machine, answer: dict):
    """Yields what is wrong with what `ask` returned."""
    stage = next((text for name, text in STAGES.items() if name not in answer), None)
    if stage:
        yield _unfinished(machine, answer, stage)
        return
    if answer["right_answers"] != answer["replicas"]:
        yield Finding("failure", "A replica computes wrong products.", "Try another machine; this one is broken")
    if machine.chips and answer["strategy"] != "TPUStrategy" and not machine.lock:
        yield Finding(
            "failure",
            f"There are {len(machine.chips)} TPU chips, but TensorFlow sees none of them.",
            'Mend what is said above; then see docs/tpu.md, "What errors mean"',
        )
    if machine.nvidia and not any("GPU" in device for device in answer["physical_devices"]):
        yield Finding(
            "warning",
            "There is an NVIDIA GPU, but TensorFlow does not see it.",
            "pip install 'tensorflow[and-cuda]>=2.20,<2.21'; look at CUDA_VISIBLE_DEVICES",
        )


def _unfinished(machine, answer, stage):
    status = answer["exit_status"]
    said = answer.get("error") or " ".join(answer["last_words"][-1:])
    words = f" It said: {said}" if said else ""
    if status is None:
        return Finding(
            "failure",
            f"`{stage}` gave no answer within {TIMEOUT_S} s.{words}",
            "Is another process on the TPU, or this a slice of several hosts (docs/tpu.md)? Without a TPU: unset "
            "TPU_NAME, export TPU_SKIP_MDS_QUERY=1",
        )
    remedy = "Mend what is said above; see docs/tpu.md; or make a new environment, one pip install for all packages"
    if status < 0:
        if "tensorflow-tpu" in machine.versions:
            remedy = OLDER_LIBTPU
        return Finding("failure", f"`{stage}` ended the process ({signal.Signals(-status).name}).{words}", remedy)
    return Finding("failure", f"`{stage}` failed.{words}", remedy)


def _shown(machine, answer, findings) -> dict:
    parts = {name: value for name, value in asdict(machine).items() if name not in ("requirements", "environment")}
    parts["versions"] = {"python": platform.python_version(), **parts["versions"]}
    return {**parts, "tensorflow": answer, "findings": [asdict(finding) for finding in findings]}


def report(machine: Machine, answer: dict, findings: list[Finding]) -> str:
    """All of it as text."""
    versions = {"python": platform.python_version()} | {name: machine.versions.get(name, "-") for name in PACKAGES}
    lines = [f"{name:<20}{version}" for name, version in versions.items()]
    room = ", ".join(f"{free / 1e9:,.0f} GB free in {folder}" for folder, free in machine.free_bytes.items())
    chip_names = f"{len(machine.chips)} x {machine.chips[0]}" if machine.chips else "none"
    lines += [
        "",
        f"{'host':<20}{machine.cores} cores, {machine.memory_bytes / 1e9:,.0f} GB of memory; {room}",
        f"{'TPU chips':<20}{chip_names}",
        f"{'Keras backend':<20}{machine.backend}",
    ]
    if "version" in answer:
        lines.append(f"{'physical devices':<20}{', '.join(answer['physical_devices'])}")
    if "strategy" in answer:
        lines.append(f"{'logical devices':<20}{', '.join(answer['logical_devices'])}")
        if machine.environment.get("TF_CONFIG") and answer["strategy"] != "TPUStrategy":
            lines.append(f"{'strategy auto':<20}multi-worker, as TF_CONFIG says; not tried here")
        else:
            lines.append(f"{'strategy auto':<20}{answer['strategy']}, replicas: {answer['replicas']}")
    if "right_answers" in answer:
        lines.append(f"{'replicas here':<20}{answer['right_answers']} compute")
    lines.append("")
    for finding in findings:
        lines += [f"{finding.severity.upper():<9}{finding.what}", f"{'':<9}-> {finding.remedy}"]
    return "\n".join(lines + ([] if findings else ["Nothing is wrong."]))
